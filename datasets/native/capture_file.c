/* SPDX-License-Identifier: GPL-2.0-only */
#include "capture_file.h"

enum { SHB = 0x0A0D0D0A, IDB = 1, PACKET = 2, SIMPLE = 3, ENHANCED = 6 };

#define NS 1000000000LL

static int start_classic(struct ndm_capture_file *f, const uint8_t *data)
{
	uint32_t magic = be32(data), major, minor;

	f->big = magic == 0xA1B2C3D4 || magic == 0xA1B23C4D || magic == 0xA1B2CD34;
	magic = get32(data, f->big);
	f->nano = magic == 0xA1B23C4D;
	f->modified = magic == 0xA1B2CD34;
	major = get16(data + 4, f->big);
	minor = get16(data + 6, f->big);
	f->link = get32(data + 20, f->big) & 0xFFFF;
	/* Before 2.3 captured and original length stood the other way round; 2.3 had both. */
	f->swapped = (major == 2 && minor < 3) || major == 543;
	f->maybe_swapped = major == 2 && minor == 3;
	return (major == 2 && minor <= 4) || major == 543 ? NDM_FILE_OK : NDM_FILE_VERSION;
}

static int start(struct ndm_capture_file *f, const uint8_t *data, size_t n, size_t *used)
{
	uint32_t magic;

	if (n < 24)
		return NDM_FILE_OK;
	magic = be32(data);
	f->started = true;
	if (magic == SHB) {
		f->ng = true;
		return NDM_FILE_OK;
	}
	switch (magic) {
	case 0xA1B2C3D4: case 0xD4C3B2A1: case 0xA1B23C4D: case 0x4D3CB2A1: case 0xA1B2CD34:
	case 0x34CDB2A1:
		*used = 24;
		return start_classic(f, data);
	}
	return NDM_FILE_MAGIC;
}

static int next_classic(struct ndm_capture_file *f, const uint8_t *data, size_t n, size_t *used,
			struct ndm_frame *frame)
{
	size_t header = f->modified ? 24 : 16;
	uint32_t first, second;

	if (n < header)
		return NDM_FILE_OK;
	first = get32(data + 8, f->big);
	second = get32(data + 12, f->big);
	if (f->swapped || (f->maybe_swapped && first > second)) {
		frame->caught = second;
		frame->wire = first;
	} else {
		frame->caught = first;
		frame->wire = second;
	}
	if (frame->caught > NDM_MAX_RECORD)
		return NDM_FILE_END;
	if (n - header < frame->caught)
		return NDM_FILE_OK;
	frame->time_ns = get32(data, f->big) * NS + get32(data + 4, f->big) * (f->nano ? 1LL : 1000LL);
	frame->link = f->link;
	frame->data = data + header;
	*used = header + frame->caught;
	return NDM_FILE_OK;
}

static int add_interface(struct ndm_capture_file *f, const uint8_t *body, size_t n)
{
	struct ndm_interface *i;
	size_t at = 8;

	if (n < 8 || f->interfaces == NDM_MAX_INTERFACES)
		return NDM_FILE_END;
	if (!grow((void **)&f->interface, f->interfaces, &f->interface_room, sizeof(*i), 4))
		return NDM_FILE_MEMORY;
	i = &f->interface[f->interfaces++];
	i->link = get16(body, f->big);
	i->ticks = 1000000;
	i->offset_s = 0;
	while (at + 4 <= n) {
		uint32_t code = get16(body + at, f->big), size = get16(body + at + 2, f->big);

		at += 4;
		if (!code || size > n - at)
			break;
		if (code == 9 && size == 1) { /* if_tsresol */
			uint32_t power = body[at] & 127;

			if (power > (body[at] & 128 ? 63 : 19))
				return NDM_FILE_CLOCK;
			i->ticks = 1;
			while (power--)
				i->ticks *= body[at] & 128 ? 2 : 10;
		} else if (code == 14 && size == 8) { /* if_tsoffset */
			uint64_t low = get32(body + at + (f->big ? 4 : 0), f->big);
			uint64_t high = get32(body + at + (f->big ? 0 : 4), f->big);

			i->offset_s = (int64_t)(high << 32 | low);
		}
		at += size + (-size & 3);
	}
	return NDM_FILE_OK;
}

static int packet_block(struct ndm_capture_file *f, uint32_t kind, const uint8_t *body, size_t n,
			struct ndm_frame *frame)
{
	const struct ndm_interface *i;
	uint32_t id;
	__int128 ns;

	if (n < 20)
		return NDM_FILE_END;
	id = kind == ENHANCED ? get32(body, f->big) : get16(body, f->big);
	if (id >= f->interfaces)
		return NDM_FILE_OK; /* of an interface that was never described: passed over */
	i = &f->interface[id];
	ns = (__int128)((uint64_t)get32(body + 4, f->big) << 32 | get32(body + 8, f->big)) * NS /
	     i->ticks + (__int128)i->offset_s * NS;
	frame->time_ns = ns < 0 || ns > INT64_MAX ? -1 : (int64_t)ns;
	frame->caught = get32(body + 12, f->big);
	frame->wire = get32(body + 16, f->big);
	frame->link = i->link;
	if (frame->caught > n - 20)
		return NDM_FILE_END;
	frame->data = body + 20;
	return NDM_FILE_OK;
}

static int section(struct ndm_capture_file *f, const uint8_t *data, size_t n)
{
	uint32_t order;

	if (n < 24)
		return NDM_FILE_OK;
	order = be32(data + 8);
	if (order != 0x1A2B3C4D && order != 0x4D3C2B1A)
		return NDM_FILE_END;
	f->big = order == 0x1A2B3C4D;
	f->interfaces = 0;
	return get16(data + 12, f->big) == 1 ? NDM_FILE_OK : NDM_FILE_VERSION;
}

static int next_block(struct ndm_capture_file *f, const uint8_t *data, size_t n, size_t *used,
		      struct ndm_frame *frame)
{
	uint32_t kind, size;
	int status = NDM_FILE_OK;

	if (n < 24 && (n < 12 || be32(data) == SHB))
		return NDM_FILE_OK;
	if (be32(data) == SHB) {
		status = section(f, data, n);
		if (status)
			return status;
	}
	kind = be32(data) == SHB ? SHB : get32(data, f->big);
	size = get32(data + 4, f->big);
	if (size < (kind == SHB ? 28 : 12) || size & 3)
		return NDM_FILE_END;
	if (kind != IDB && kind != PACKET && kind != SIMPLE && kind != ENHANCED) {
		f->skip = size;
		return NDM_FILE_OK;
	}
	if (size > NDM_MAX_RECORD)
		return NDM_FILE_END;
	if (n < size)
		return NDM_FILE_OK;
	if (get32(data + size - 4, f->big) != size)
		return NDM_FILE_END;
	if (kind == SIMPLE)
		return f->interfaces ? NDM_FILE_NO_TIME : NDM_FILE_END;
	status = kind == IDB ? add_interface(f, data + 8, size - 12) :
			       packet_block(f, kind, data + 8, size - 12, frame);
	if (!status)
		*used = size;
	return status;
}

int ndm_file_next(struct ndm_capture_file *f, const uint8_t *data, size_t n, size_t *used,
		  struct ndm_frame *frame)
{
	int status = NDM_FILE_OK;

	*used = 0;
	frame->data = NULL;
	if (!f->started)
		status = start(f, data, n, used);
	if (!status && f->started && !*used && !f->skip)
		status = f->ng ? next_block(f, data, n, used, frame) :
				 next_classic(f, data, n, used, frame);
	if (!status && f->skip) {
		*used = f->skip < n ? (size_t)f->skip : n;
		f->skip -= *used;
	}
	f->offset += *used;
	return status;
}

void ndm_file_free(struct ndm_capture_file *f)
{
	free(f->interface);
	memset(f, 0, sizeof(*f));
}
