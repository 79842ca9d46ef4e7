/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef USER_BPF_ENDIAN_H
#define USER_BPF_ENDIAN_H

#include <endian.h>

/* Constant expressions, as `case` needs. */
#if __BYTE_ORDER == __LITTLE_ENDIAN
#define bpf_htons(x) ((__be16)__builtin_bswap16(x))
#define bpf_htonl(x) ((__be32)__builtin_bswap32(x))
#define bpf_cpu_to_be64(x) ((__be64)__builtin_bswap64(x))
#else
#define bpf_htons(x) ((__be16)(x))
#define bpf_htonl(x) ((__be32)(x))
#define bpf_cpu_to_be64(x) ((__be64)(x))
#endif
#define bpf_ntohs bpf_htons
#define bpf_ntohl bpf_htonl
#define bpf_be64_to_cpu bpf_cpu_to_be64

#endif
