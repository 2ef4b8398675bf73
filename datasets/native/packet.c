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

/* Offset of the IP header; -1: this is not IP, -2: unknown link type. */
static int64_t network(const uint8_t *data, uint32_t caught, uint32_t link, uint64_t *vlan)
{
	*vlan = 0;
	switch (link) {
	case 1: /* Ethernet */
		return caught < 14 ? -1 : walk_ethertype(data, caught, be16(data + 12), 14, vlan);
	case 113: /* Linux cooked */
		return caught < 16 ? -1 : walk_ethertype(data, caught, be16(data + 14), 16, vlan);
	case 276: /* Linux cooked v2 */
		return caught < 20 ? -1 : walk_ethertype(data, caught, be16(data), 20, vlan);
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

enum ndm_packet ndm_packet_parse(const uint8_t *data, uint32_t caught, uint32_t wire,
				 uint32_t link, struct ndm_segment *s)
{
	int64_t start = network(data, caught, link, &s->vlan);
	const uint8_t *ip, *tcp;
	uint32_t left, header;
	int64_t length;
	size_t size;
	uint8_t protocol;

	if (start == -2)
		return NDM_PACKET_LINK;
	if (start < 0 || caught <= start)
		return NDM_PACKET_NOT_TCP;
	ip = data + start;
	left = caught - (uint32_t)start;
	s->family = ip[0] >> 4;
	s->ip_id = 0;
	memset(s->ends, 0, sizeof(s->ends));
	if (s->family == 4 && left >= 20) {
		header = (ip[0] & 15u) * 4;
		length = be16(ip + 2) ? be16(ip + 2) : (int64_t)wire - start;
		if (be16(ip + 6) & 0x3FFF)
			return NDM_PACKET_FRAGMENT;
		protocol = ip[9];
		s->ip_id = be16(ip + 4);
		size = 4;
		memcpy(s->ends[0], ip + 12, 4);
		memcpy(s->ends[1], ip + 16, 4);
		if (protocol == 6 && header < 20)
			return NDM_PACKET_CUT;
		length -= header;
	} else if (s->family == 6 && left >= 40) {
		protocol = ip[6];
		length = be16(ip + 4) ? be16(ip + 4) : (int64_t)wire - start - 40;
		size = 16;
		memcpy(s->ends[0], ip + 8, 16);
		memcpy(s->ends[1], ip + 24, 16);
		header = 40;
		while (is_extension(protocol) && left >= header + 8) {
			uint32_t bytes = (ip[header + 1] + 1u) * 8;

			protocol = ip[header];
			header += bytes;
			length -= bytes;
		}
		if (protocol == 44)
			return NDM_PACKET_FRAGMENT;
	} else {
		return NDM_PACKET_NOT_TCP;
	}
	if (protocol != 6)
		return NDM_PACKET_NOT_TCP;
	if (left < header + 20)
		return NDM_PACKET_CUT;
	tcp = ip + header;
	left -= header;
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
	return NDM_PACKET_TCP;
}

/* Stops silently where the options are cut off. */
void ndm_options_parse(const uint8_t *raw, uint32_t size, struct ndm_options *found)
{
	uint32_t i = 0;

	found->mss = found->wscale = -1;
	found->stamps = false;
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
