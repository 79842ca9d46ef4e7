/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The Internet checksum [RFC 1071] over a packet of BYTES bytes without its first 8. */
static inline u64 work(const u8 *data)
{
	u32 sum = 0;

	for (int at = 8; at < BYTES; at += 2)
		sum += *(const u16 *)(data + at);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum ^ 0xffff;
}
