/* SPDX-License-Identifier: GPL-2.0-only */
#include "packet.h"

enum { ETH_IPV4 = 0x0800, ETH_IPV6 = 0x86DD, ETH_PPPOE = 0x8864, ETH_MPLS = 0x8847 };

static bool is_vlan(uint32_t kind)
{
	return kind == 0x8100 || kind == 0x88A8 || kind == 0x9100;
}

/* From the EtherType at hand to the IP header; -1 if there is none. */
static int64_t walk_ethertype(const uint8_t *data, uint32_t caught, uint32_t kind, uint32_t at,
			      uint64_t *vlan)
{
	while (is_vlan(kind) && caught >= at + 4) {
		*vlan = *vlan << 12 | (be16(data + at) & 0xFFF);
		kind = be16(data + at + 2);
		at += 4;
	}
	if (kind == ETH_PPPOE && caught >= at + 8) {
		uint32_t protocol = be16(data + at + 6);

		kind = protocol == 0x0021 ? ETH_IPV4 : protocol == 0x0057 ? ETH_IPV6 : 0;
		at += 8;
	}
	if (kind == ETH_MPLS || kind == ETH_MPLS + 1) {
		while (caught >= at + 4 && !(data[at + 2] & 1))
			at += 4;
		return at + 4;
	}
	return kind == ETH_IPV4 || kind == ETH_IPV6 ? (int64_t)at : -1;
}

/* Q.922 address and NLPID (RFC 2427), or Cisco's EtherType in place of the NLPID. */
static int64_t frame_relay(const uint8_t *data, uint32_t caught, uint64_t *vlan)
{
	if (caught < 10)
		return -1;
	if (data[2] != 3)
		return walk_ethertype(data, caught, be16(data + 2), 4, vlan);
	if (data[3] == 0xCC || data[3] == 0x8E)
		return 4;
	return data[4] == 0x80 ? walk_ethertype(data, caught, be16(data + 8), 10, vlan) : -1;
}

/* 4 bytes, then attributes of length, type, value; the packet is the value of type 9. */
static int64_t nflog(const uint8_t *data, uint32_t caught)
{
	uint32_t at = 4, size, k;
	bool big;

	/* In the byte order of the host that wrote the file; no field records it. */
	for (k = 0; k < 2; k++) {
		for (big = k, at = 4; caught >= at + 4; at += size + (-size & 3)) {
			size = get16(data + at, big);
			if (size < 4)
				break;
			if ((get16(data + at + 2, big) & 0x7FFF) == 9)
				return at + 4;
		}
	}
	return -1;
}

/* Offset of the IP header; -1: this is not IP, -2: unknown link type. */
static int64_t network(const uint8_t *data, uint32_t caught, uint32_t link, uint64_t *vlan)
{
	int64_t inner;

	switch (link) {
	case 1: /* Ethernet */
		return caught < 14 ? -1 : walk_ethertype(data, caught, be16(data + 12), 14, vlan);
	case 104: /* Cisco HDLC */
		return caught < 4 ? -1 : walk_ethertype(data, caught, be16(data + 2), 4, vlan);
	case 107: /* Frame Relay */
		return frame_relay(data, caught, vlan);
	case 113: /* Linux cooked */
		return caught < 16 ? -1 : walk_ethertype(data, caught, be16(data + 14), 16, vlan);
	case 276: /* Linux cooked v2 */
		return caught < 20 ? -1 : walk_ethertype(data, caught, be16(data), 20, vlan);
	case 239:
		return nflog(data, caught);
	case 242: /* IP over InfiniBand: 40 bytes of addresses or GRH, EtherType, 2 bytes */
		return caught < 44 ? -1 : walk_ethertype(data, caught, be16(data + 40), 44, vlan);
	case 258: /* Apple's PKTAP: its length, 4 bytes, the link type of what follows */
		if (caught < 12 || get32(data, false) < 12 || get32(data, false) >= caught ||
		    get32(data + 8, false) == link)
			return -1;
		inner = network(data + get32(data, false), caught - get32(data, false),
				get32(data + 8, false), vlan);
		return inner < 0 ? inner : inner + get32(data, false);
	case 281: /* switch tags between the addresses and the EtherType: Broadcom, */
	case 284: /* Marvell DSA, */
		return caught < 18 ? -1 : walk_ethertype(data, caught, be16(data + 16), 18, vlan);
	case 285: /* Marvell EDSA */
		return caught < 22 ? -1 : walk_ethertype(data, caught, be16(data + 20), 22, vlan);
	case 282: /* Broadcom's before the addresses */
		return caught < 18 ? -1 : walk_ethertype(data, caught, be16(data + 16), 18, vlan);
	case 0: /* BSD loopback */
	case 108:
		return 4;
	case 12: /* raw IP, by the names of several systems */
	case 14:
	case 101:
	case 228:
	case 229:
		return 0;
	default:
		return -2;
	}
}

static bool is_extension(uint8_t protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 60 || protocol == 135;
}

/* --- tunnels ------------------------------------------------------------------------------ */

enum { IPIP = 4, TCP = 6, UDP = 17, IPV6 = 41, FRAGMENT = 44, GRE = 47, AH = 51 };
enum { BRIDGED = 0x6558, ERSPAN2 = 0x88BE, ERSPAN3 = 0x22EB };

/* Behind a GRE header (RFC 2784, 2890): EtherType, and offset in *at; 0: nothing known. */
static uint32_t in_gre(const uint8_t *p, uint32_t left, uint32_t *at)
{
	uint32_t kind;

	if (left < 4 || p[1] & 7)
		return 0;
	kind = be16(p + 2);
	*at = 4 + (p[0] & 0x80 ? 4 : 0) + (p[0] & 0x20 ? 4 : 0) + (p[0] & 0x10 ? 4 : 0);
	if (kind == ERSPAN2) /* without sequence numbers it is type I, which has no header */
		*at += p[0] & 0x10 ? 8 : 0;
	else if (kind == ERSPAN3)
		*at += left > *at + 11 && p[*at + 11] & 1 ? 20 : 12;
	return kind == ERSPAN2 || kind == ERSPAN3 ? BRIDGED : kind;
}

static uint32_t in_gtp(const uint8_t *p, uint32_t left, uint32_t *at)
{
	uint8_t next;

	if (left < 8 || (p[0] & 0xF0) != 0x30 || p[1] != 255)
		return 0;
	*at = 8;
	if (p[0] & 7) {
		if (left < 12)
			return 0;
		next = p[0] & 4 ? p[11] : 0;
		for (*at = 12; next; *at += p[*at] * 4) {
			if (left <= *at || !p[*at] || left < *at + p[*at] * 4)
				return 0;
			next = p[*at + p[*at] * 4 - 1];
		}
	}
	return ETH_IPV4;
}

static uint32_t in_udp(const uint8_t *p, uint32_t left, uint32_t *at)
{
	uint32_t kind = 0;

	if (left < 16)
		return 0;
	switch (be16(p + 2)) {
	case 4789: /* VXLAN, RFC 7348 */
	case 8472: /* Linux's first port for it */
		*at = 8;
		kind = p[8] & 8 ? BRIDGED : 0;
		break;
	case 6081: /* GENEVE, RFC 8926 */
		*at = 8 + (p[8] & 63u) * 4;
		kind = p[8] >> 6 ? 0 : be16(p + 10);
		break;
	case 2152: /* GTP-U, 3GPP TS 29.281 */
		kind = in_gtp(p + 8, left - 8, at);
		break;
	}
	*at += 8;
	return kind;
}

/* Offset of the IP header inside a tunnel; -1: no tunnel that is known here. */
static int64_t inside(uint8_t protocol, const uint8_t *p, uint32_t left, uint64_t *vlan)
{
	uint32_t kind = 0, at = 0;

	if (protocol == IPIP || protocol == IPV6)
		return 0;
	if (protocol == GRE)
		kind = in_gre(p, left, &at);
	else if (protocol == UDP)
		kind = in_udp(p, left, &at);
	if (kind != BRIDGED)
		return kind ? walk_ethertype(p, left, kind, at, vlan) : -1;
	return left < at + 14 ? -1 : walk_ethertype(p, left, be16(p + at + 12), at + 14, vlan);
}

/* --- IP and TCP --------------------------------------------------------------------------- */

static enum ndm_packet parse_tcp(const uint8_t *tcp, uint32_t left, int64_t length, size_t size,
				 struct ndm_segment *s)
{
	uint32_t header;

	if (left < 20)
		return NDM_PACKET_CUT;
	memcpy(s->ends[0] + size, tcp, 2);
	memcpy(s->ends[1] + size, tcp + 2, 2);
	s->seq = be32(tcp + 4);
	s->ack = be32(tcp + 8);
	header = (tcp[12] >> 4) * 4u;
	s->flags = tcp[13];
	s->window = be16(tcp + 14);
	s->checksum = be16(tcp + 16);
	if (header < 20 || length < header || length - header > NDM_MAX_PAYLOAD)
		return NDM_PACKET_CUT;
	s->payload = (uint32_t)(length - header);
	s->options = tcp + 20;
	s->option_bytes = (uint8_t)((left < header ? left : header) - 20);
	s->options_cut = left < header;
	return NDM_PACKET_TCP;
}

/* No fragment at all: its first one, and no more of them (RFC 6946). */
static bool is_atomic(const uint8_t *header)
{
	return !(be16(header + 2) & 0xFFF9);
}

/* What follows the extension headers of IPv6. */
static uint8_t skip_extensions(const uint8_t *ip, uint32_t left, uint8_t protocol,
			       uint32_t *header, int64_t *length)
{
	while (left >= *header + 8 && (is_extension(protocol) ||
				       (protocol == FRAGMENT && is_atomic(ip + *header)))) {
		uint32_t bytes = protocol == FRAGMENT ? 8 : (ip[*header + 1] + 1u) * 8;

		protocol = ip[*header];
		*header += bytes;
		*length -= bytes;
	}
	return protocol;
}

/* `wire`: bytes from here on that the packet had, for lengths that IP gives as 0. */
static enum ndm_packet parse_ip(const uint8_t *ip, uint32_t left, int64_t wire,
				struct ndm_segment *s)
{
	uint32_t header;
	int64_t length, start;
	size_t size;
	uint8_t protocol;

	s->family = ip[0] >> 4;
	s->ip_id = 0;
	memset(s->ends, 0, sizeof(s->ends));
	if (s->family == 4 && left >= 20) {
		header = (ip[0] & 15u) * 4;
		length = be16(ip + 2) ? be16(ip + 2) : wire;
		if (be16(ip + 6) & 0x3FFF)
			return NDM_PACKET_FRAGMENT;
		s->ttl = ip[8];
		protocol = ip[9];
		s->ip_id = be16(ip + 4);
		size = 4;
		memcpy(s->ends[0], ip + 12, 4);
		memcpy(s->ends[1], ip + 16, 4);
		if (header < 20)
			return protocol == TCP ? NDM_PACKET_CUT : NDM_PACKET_NOT_TCP;
		length -= header;
	} else if (s->family == 6 && left >= 40) {
		protocol = ip[6];
		s->ttl = ip[7];
		length = be16(ip + 4) ? be16(ip + 4) : wire - 40;
		size = 16;
		memcpy(s->ends[0], ip + 8, 16);
		memcpy(s->ends[1], ip + 24, 16);
		header = 40;
		protocol = skip_extensions(ip, left, protocol, &header, &length);
		if (protocol == FRAGMENT)
			return NDM_PACKET_FRAGMENT;
	} else {
		return s->family == 4 || s->family == 6 ? NDM_PACKET_CUT : NDM_PACKET_NOT_TCP;
	}
	if (protocol == AH && left >= header + 12) {
		uint32_t bytes = (ip[header + 1] + 2u) * 4;

		protocol = ip[header];
		header += bytes;
		length -= bytes;
	}
	if (protocol == TCP)
		return left < header ? NDM_PACKET_CUT :
				       parse_tcp(ip + header, left - header, length, size, s);
	if (left <= header || s->tunnels == NDM_MAX_TUNNELS)
		return NDM_PACKET_NOT_TCP;
	start = inside(protocol, ip + header, left - header, &s->vlan);
	if (start < 0 || left - header <= start)
		return NDM_PACKET_NOT_TCP;
	start += header;
	s->tunnels++;
	return parse_ip(ip + start, left - (uint32_t)start, wire - start, s);
}

enum ndm_packet ndm_packet_parse(const uint8_t *data, uint32_t caught, uint32_t wire,
				 uint32_t link, struct ndm_segment *s)
{
	int64_t start;

	s->vlan = 0;
	s->tunnels = 0;
	start = network(data, caught, link, &s->vlan);
	if (start == -2)
		return NDM_PACKET_LINK;
	if (start < 0 || caught <= start)
		return NDM_PACKET_NOT_TCP;
	return parse_ip(data + start, caught - (uint32_t)start, (int64_t)wire - start, s);
}

/* Stops silently where the options are cut off. */
void ndm_options_parse(const uint8_t *raw, uint32_t size, struct ndm_options *found)
{
	uint32_t i = 0;

	found->mss = found->wscale = -1;
	found->stamps = found->sack_permitted = false;
	found->n_sack = 0;
	while (i < size) {
		uint32_t kind = raw[i], bytes, body, k;

		if (kind == 0)
			return;
		if (kind == 1) {
			i++;
			continue;
		}
		if (i + 1 >= size)
			return;
		bytes = raw[i + 1];
		if (bytes < 2)
			return;
		body = size - i - 2;
		if (body < bytes - 2 && kind != 5)
			return;
		if (body > bytes - 2)
			body = bytes - 2;
		if (kind == 2 && bytes == 4) {
			found->mss = be16(raw + i + 2);
		} else if (kind == 3 && bytes == 3) {
			found->wscale = raw[i + 2] < 14 ? raw[i + 2] : 14;
		} else if (kind == 4 && bytes == 2) {
			found->sack_permitted = true;
		} else if (kind == 8 && bytes == 10) {
			found->stamps = true;
			found->ts_value = be32(raw + i + 2);
			found->ts_echo = be32(raw + i + 6);
		} else if (kind == 5) {
			/* A short snaplen cuts the last block; the first one is the news. */
			found->n_sack = 0;
			for (k = 0; k + 8 <= body && found->n_sack < NDM_MAX_SACK; k += 8) {
				found->sack[found->n_sack][0] = be32(raw + i + 2 + k);
				found->sack[found->n_sack++][1] = be32(raw + i + 6 + k);
			}
		}
		i += bytes;
	}
}
