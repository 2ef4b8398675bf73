/* SPDX-License-Identifier: GPL-2.0-only */
/* pcap and pcapng, a piece at a time: finds the packets in decompressed bytes. */
#ifndef NDM_CAPTURE_FILE_H
#define NDM_CAPTURE_FILE_H

#include "bytes.h"

#define NDM_MAX_INTERFACES 65536
#define NDM_MAX_RECORD (1u << 20)	/* bytes of one packet or of one block that is looked at */

enum ndm_file {
	NDM_FILE_OK,
	NDM_FILE_END = -1,	/* the rest is not a whole record, or damaged */
	NDM_FILE_NO_TIME = -2,	/* a packet without a time stamp */
	NDM_FILE_CLOCK = -3,	/* a time resolution beyond 64 bits */
	NDM_FILE_VERSION = -4,
	NDM_FILE_MEMORY = -5,
	NDM_FILE_MAGIC = -6,
};

struct ndm_interface {
	uint32_t link;
	uint64_t ticks;		/* per second */
	int64_t offset_s;
};

struct ndm_capture_file {
	bool started, ng, big, nano, swapped, maybe_swapped, modified;
	uint32_t link;
	struct ndm_interface *interface;
	size_t interfaces, interface_room;
	uint64_t skip;		/* bytes of a block nobody looks at that are still to come */
	uint64_t offset;	/* of the next byte to look at, in the decompressed file */
};

struct ndm_frame {
	const uint8_t *data;
	uint32_t caught;
	uint32_t wire;
	uint32_t link;
	int64_t time_ns;	/* -1: before 1970 or after 2262 */
};

/*
 * Take the bytes at `data`: *used is the number of bytes consumed. A frame was found if
 * frame->data is set; else more bytes are needed (*used 0) or something else was skipped.
 */
int ndm_file_next(struct ndm_capture_file *f, const uint8_t *data, size_t n, size_t *used,
		  struct ndm_frame *frame);
void ndm_file_free(struct ndm_capture_file *f);

#endif
