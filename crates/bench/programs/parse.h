/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The 5-tuple of a packet with up to two VLAN tags, as one number. */
#define BYTES 64
#define COUNT 16

static inline u64 work(const u8 *data)
{
	const u8 *ip = data + 14;
	u16 type = *(const u16 *)(data + 12), ports;
	u64 key;

	for (int tag = 0; tag < 2 && (type == 0x0081 || type == 0xa888); tag++) {
		type = *(const u16 *)(ip + 2);
		ip += 4;
	}
	if (type != 0x0008 || ip[0] != 0x45)
		return 0;
	if (*(const u16 *)(ip + 6) & 0xff3f)
		return 0;
	if (ip[9] != 6 && ip[9] != 17)
		return 0;
	key = (u64)*(const u16 *)(ip + 12) << 48 | (u64)*(const u16 *)(ip + 14) << 32;
	key |= (u64)*(const u16 *)(ip + 16) << 16 | *(const u16 *)(ip + 18);
	ports = *(const u16 *)(ip + 20) * 31 + *(const u16 *)(ip + 22);
	return key ^ (u64)ports << 20 ^ (u64)ip[9] << 40;
}
