/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What both forms of the leaky bucket agree about. */
#ifndef FLOWLOOM_LEAKY_BUCKET_BPF_H
#define FLOWLOOM_LEAKY_BUCKET_BPF_H

#include "../flow.bpf.h"

/* A packet leaks out of a bucket in this time. */
#ifndef INTERVAL_NS
#define INTERVAL_NS 1000000ULL
#endif
/* A bucket holds so many packets. */
#ifndef BURST
#define BURST 10
#endif
#ifndef FLOWS
#define FLOWS 65536
#endif

/* An empty bucket takes what comes so long before its time. */
#define SLACK_NS ((BURST - 1) * (__u64)INTERVAL_NS)

/* Whether `a` is not before `b`; clocks go around. */
static __always_inline bool is_from(__u64 a, __u64 b)
{
	return (__s64)(a - b) >= 0;
}

#endif
