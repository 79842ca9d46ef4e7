/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What functions in C use of <linux/bpf.h>, for user space. */
#ifndef USER_LINUX_BPF_H
#define USER_LINUX_BPF_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

/* Addresses have 64 bits here. */
struct xdp_md {
	__u64 data;
	__u64 data_end;
	__u32 ingress_ifindex;
};

enum { BPF_ANY, BPF_NOEXIST, BPF_EXIST, BPF_F_LOCK = 4 };
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_DEVMAP = 14 };

#endif
