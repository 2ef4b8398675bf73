/* SPDX-License-Identifier: GPL-2.0-only */
/* One captured packet: link layer, IP and TCP headers, and the TCP options a sender uses. */
#ifndef NDM_PACKET_H
#define NDM_PACKET_H

#include "bytes.h"

enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

enum ndm_packet {
	NDM_PACKET_TCP,
	NDM_PACKET_NOT_TCP,
	NDM_PACKET_CUT,		/* the headers are not whole, or not possible */
	NDM_PACKET_FRAGMENT,
	NDM_PACKET_LINK,	/* a link type that is not known here */
};

/* Tunnels in one another; more are taken for an attack on the stack. */
#define NDM_MAX_TUNNELS 4

struct ndm_segment {
	int64_t time_ns;
	uint8_t ends[2][18];	/* source and target: address (IPv4: first 4 bytes), port */
	uint64_t vlan;		/* VLAN ids folded into one number; 0 without VLAN */
	uint8_t tunnels;	/* around this packet */
	uint32_t seq;
	uint32_t ack;
	uint32_t payload;	/* bytes by the IP length, not by the captured length */
	uint16_t window;	/* unscaled */
	uint16_t ip_id;		/* 0: IPv6, or not used */
	uint16_t checksum;
	uint8_t flags;
	uint8_t family;		/* 4 or 6 */
	uint8_t ttl;
	uint8_t option_bytes;
	bool options_cut;	/* by the snaplen */
	const uint8_t *options;
};

#define NDM_MAX_SACK 4

struct ndm_options {
	int32_t mss;		/* -1: none */
	int32_t wscale;		/* -1: none */
	bool stamps, sack_permitted;
	uint32_t ts_value;
	uint32_t ts_echo;
	int n_sack;
	uint32_t sack[NDM_MAX_SACK][2];
};

/* Larger than any GSO packet of Linux (BIG TCP). */
#define NDM_MAX_PAYLOAD (1u << 20)

enum ndm_packet ndm_packet_parse(const uint8_t *data, uint32_t caught, uint32_t wire,
				 uint32_t link, struct ndm_segment *segment);
void ndm_options_parse(const uint8_t *raw, uint32_t size, struct ndm_options *found);

#endif
