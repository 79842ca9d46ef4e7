// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of the size of a load balancer's: `check`, `verify` and `run` on them, and the state file.

use crate::common::{BIG_FLOW, Ran, c_program, exits, name, ok, packet, put, run, top, write};
use flowloom_testkit::{PacketBuilder, skip};
use serde_json::Value;

/// A load balancer with the maps of Katran at full size: consistent-hashing rings of 512 services, a connection table
/// of 8 million entries in per-CPU maps, servers, QUIC connection ids, and counters.
const BALANCER: &str = r#"
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>

#define RING 65537
#define SERVICES 512
struct service { __u32 address; __u16 port; __u8 protocol; __u8 pad; };
struct meta { __u32 flags; __u32 number; };
struct flow { __u32 source; __u32 target; __u16 ports[2]; __u8 protocol; __u8 pad[3]; };
struct server { __u32 address; __u32 flags; };
struct count { __u64 packets; __u64 bytes; };

struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, SERVICES); __type(key, struct service);
         __type(value, struct meta); } vip_map SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, SERVICES * RING + 1040); __type(key, __u32);
         __type(value, __u32); } ch_rings SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4096); __type(key, __u32);
         __type(value, struct server); } reals SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 16777214); __type(key, __u32);
         __type(value, __u32); } server_ids SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1024); __type(key, __u32);
         __type(value, struct count); } stats SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 8000000); __type(key, struct flow);
         __type(value, struct server); } flows SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 1000000); __type(key, __u32);
         __type(value, __u64); } unused SEC(".maps");

SEC("xdp") int balance(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
        return XDP_PASS;
    struct service service = { .address = ip->daddr, .protocol = ip->protocol };
    struct meta *meta = bpf_map_lookup_elem(&vip_map, &service);
    __u32 number = meta ? meta->number : ip->daddr & 1023;
    struct flow flow = { .source = ip->saddr, .target = ip->daddr, .protocol = ip->protocol };
    struct server *known = bpf_map_lookup_elem(&flows, &flow);
    __u32 key = number;
    struct count *count = bpf_map_lookup_elem(&stats, &key);
    if (count) {
        count->packets += 1;
        count->bytes += end - data;
    }
    if (known)
        return XDP_TX;
    key = number * RING + (ip->saddr % RING);
    __u32 *real = bpf_map_lookup_elem(&ch_rings, &key);
    if (!real)
        return XDP_DROP;
    *real += 1;
    key = *real & 4095;
    struct server *server = bpf_map_lookup_elem(&reals, &key);
    if (!server)
        return XDP_DROP;
    key = ip->saddr & 0xffffff;
    __u32 *id = bpf_map_lookup_elem(&server_ids, &key);
    if (id)
        *id = server->flags;
    struct server chosen = *server;
    bpf_map_update_elem(&flows, &flow, &chosen, BPF_ANY);
    return XDP_TX;
}
"#;

/// A constant key above the map size used for verification: the kernel accepts the lookup without a null check.
const CONSTANT_KEY: &str = r#"
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 5000); __type(key, __u32);
         __type(value, __u64); } places SEC(".maps");
SEC("xdp") int direct(struct xdp_md *ctx)
{
    __u32 key __attribute__((aligned(8))) = 4321;
    __u64 *place = bpf_map_lookup_elem(&places, &key);
    *place += 1;
    return XDP_PASS;
}
"#;

#[test]
fn maps_at_full_size_are_checked_and_verified() {
    let Some((_folder, path)) = c_program("maps_at_full_size_are_checked_and_verified", BALANCER) else { return };
    exits(0, &["check", name(&path)]);
    exits(0, &["verify", name(&path), "--packets", "300"]).stdout_has(&["kernel: equal to `interp`"]);
}

#[test]
fn constant_keys_above_the_size_for_verdicts_are_judged_at_full_size() {
    let test = "constant_keys_above_the_size_for_verdicts_are_judged_at_full_size";
    let Some((_folder, path)) = c_program(test, CONSTANT_KEY) else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    // Since 6.14 a lookup under a constant key needs no null check.
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 14) {
        return skip(test, "this kernel wants a null check after every lookup");
    }
    let report = run(&["check", name(&path), "--json"]).json();
    let targets =
        report.pointer("/programs/0/targets").and_then(Value::as_array).unwrap_or_else(|| panic!("{report:#}"));
    let kernel = targets.iter().find(|target| target["target"] == "kernel").unwrap();
    assert_eq!(kernel["runs"], true, "{report:#}");
}

#[test]
fn a_state_path_that_cannot_be_written_ends_the_run_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    ok(&["trace", "gen", "--profile", "chi15", "-c", "10", "-w", name(&capture)]);
    let arguments = ["run", BIG_FLOW, "-r", name(&capture), "-w", name(&out), "--state-out"];
    let ran = run(&[&arguments[..], &["/nonexistent/x.json"]].concat());
    assert!(ran.code == Some(2) && ran.stdout.is_empty(), "{ran:?}");
    assert!(ran.stderr.contains("`/nonexistent/x.json` cannot be written"), "{ran:?}");
    assert!(!out.exists(), "no packet has been run");
    // A failed run leaves an earlier state unchanged and no temporary file.
    let state = put(&folder, "state.json", "earlier");
    let all = std::fs::read(&capture).unwrap();
    std::fs::write(&capture, &all[..30]).unwrap();
    let ran = run(&[&arguments[..], &[name(&state)]].concat());
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "earlier");
    let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::write(&capture, all).unwrap();
    ok(&[&arguments[..], &[name(&state)]].concat());
    assert!(std::fs::read_to_string(&state).unwrap().starts_with("{\""));
}

/// A state is written entry by entry: its text, or a tree of its values, would take several times the memory of the
/// run.
#[test]
fn a_large_state_is_written_in_little_memory() {
    const CONTEXTS: u32 = 100_000;
    const LIMIT_KIB: u32 = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(
        path("many.efsm"),
        "function many;\nstateful hosts {\n    key ip.src;\n    size 200000;\n    states a;\n    reg n: u64;\n    \
         on a -> a (idle 60s) { n += 1; pass; }\n    otherwise { pass; }\n}\n",
    )
    .unwrap();
    let packets = (0..CONTEXTS).map(|host| {
        let [_, a, b, c] = host.to_be_bytes();
        packet(1_000 * u64::from(host), PacketBuilder::new().ipv4([10, a, b, c], [192, 0, 2, 1]).udp(1, 2).build())
    });
    write(&path("in.pcap"), &packets.collect::<Vec<_>>());
    let limited = format!("ulimit -d {LIMIT_KIB} && exec \"$@\"");
    let mut command = std::process::Command::new("sh");
    command.current_dir(top()).args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_flowloom"), "run"]);
    command.arg(path("many.efsm")).arg("-r").arg(path("in.pcap")).args(["--engine", "interp", "--state-out"]);
    let ran = Ran::from(command.arg(path("state.json")).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let written = std::fs::read_to_string(path("state.json")).unwrap();
    assert_eq!(written.matches("\"key\"").count(), CONTEXTS as usize);
}
