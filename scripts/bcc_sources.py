# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Translates programs for bcc to plain C: bcc declares maps with macros, and calls methods on them."""

import re

TEXT = re.compile(r'"""(.*?)"""', re.DOTALL)
# Includes and definitions that bcc adds.
PRELUDE = """#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#define htons(x) bpf_htons(x)
#define ntohs(x) bpf_ntohs(x)
#define htonl(x) bpf_htonl(x)
#define ntohl(x) bpf_ntohl(x)
typedef __u8 uint8_t; typedef __u16 uint16_t; typedef __u32 uint32_t; typedef __u64 uint64_t;
typedef __u8 u8; typedef __u16 u16; typedef __u32 u32; typedef __u64 u64;
struct vlan_hdr { __be16 h_vlan_TCI; __be16 h_vlan_encapsulated_proto; };
#ifndef RETURNCODE
#define RETURNCODE XDP_DROP
#endif
#ifndef CTXTYPE
#define CTXTYPE xdp_md
#endif
#define OR_INIT(map, key, value) ({ void *found = bpf_map_lookup_elem(map, key); \\
    if (!found) { bpf_map_update_elem(map, key, value, BPF_NOEXIST); found = bpf_map_lookup_elem(map, key); } found; })
char _license[] SEC("license") = "GPL";
"""
KINDS = {"hash": "HASH", "array": "ARRAY", "percpu_array": "PERCPU_ARRAY", "percpu_hash": "PERCPU_HASH",
         "lru_hash": "LRU_HASH", "MAPTYPE": "PERCPU_ARRAY"}
SHORT = {"BPF_ARRAY": "ARRAY", "BPF_PERCPU_ARRAY": "PERCPU_ARRAY", "BPF_DEVMAP": "DEVMAP", "BPF_CPUMAP": "CPUMAP",
         "BPF_XSKMAP": "XSKMAP", "BPF_HASH": "HASH"}
METHODS = {"lookup": "bpf_map_lookup_elem", "update": "bpf_map_update_elem", "delete": "bpf_map_delete_elem",
           "redirect_map": "bpf_redirect_map", "lookup_or_init": "OR_INIT", "lookup_or_try_init": "OR_INIT"}
MACROS = {"__NUM_CPUS__": "8", "__MAX_CPU__": "8"}


def declared(name, kind, key, value, entries):
    return (f"struct {{ __uint(type, BPF_MAP_TYPE_{kind}); __type(key, {key}); __type(value, {value}); "
            f"__uint(max_entries, {entries}); }} {name} SEC(\".maps\");")


def plain(text):
    """Translates a program to plain C."""
    names = []

    def table(found):
        macro, words = found[1], [word.strip() for word in found[2].split(",")]
        if macro == "BPF_TABLE":
            kind, key, value, name, entries = KINDS.get(words[0].strip('"'), "HASH"), *words[1:5]
        elif macro in ("BPF_DEVMAP", "BPF_CPUMAP", "BPF_XSKMAP"):
            name, kind, key, value, entries = words[0], SHORT[macro], "__u32", "__u32", words[1]
        elif macro == "BPF_HASH":
            words += ["__u64", "__u64", "10240"][len(words) - 1:]
            name, kind, key, value, entries = words[0], "HASH", *words[1:4]
        else:
            words += ["__u64", "10240"][len(words) - 1:]
            name, kind, key, value, entries = words[0], SHORT[macro], "__u32", *words[1:3]
        names.append(name)
        return declared(name, kind, key, value, entries)

    text = re.sub(r"\b(BPF_TABLE|BPF_(?:PERCPU_)?ARRAY|BPF_HASH|BPF_(?:DEV|CPU|XSK)MAP)\(([^()]*)\)\s*;", table, text)
    for name in names:
        def call(found):
            return f"{METHODS[found[1]]}(&{name}, "
        text = re.sub(rf"\b{name}\.({'|'.join(METHODS)})\(", call, text)
    # bcc's methods have no flags.
    text = re.sub(r"(bpf_map_update_elem\([^;]*)\)\s*;", r"\1, 0);", text)
    for macro, value in MACROS.items():
        text = re.sub(rf"\b{macro}\b", value, text)
    text = re.sub(r"#\s*include\s*<uapi/", "#include <", text)
    # bcc treats each function that is not inline as a program.
    return PRELUDE + re.sub(r"^int (\w+)\(\s*struct (CTXTYPE|xdp_md)\s*\*", r'SEC("xdp")\nint \1(struct \2 *', text, flags=re.MULTILINE)


def translated(source, folder):
    """Writes a C file for each XDP program in a Python or C source. Returns their paths."""
    text = source.read_text(errors="replace")
    texts = [text] if source.suffix == ".c" else TEXT.findall(text)
    texts = [text for text in texts if re.search(r"struct\s+(xdp_md|CTXTYPE)\s*\*", text)]
    folder.mkdir(exist_ok=True)
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{source.stem}{f'-{number}' if number else ''}.bpf.c")
        files[-1].write_text(plain(text))
    return files
