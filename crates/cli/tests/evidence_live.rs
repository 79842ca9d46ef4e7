// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tests of functions on interfaces, between hosts in network namespaces: `make evidence` runs and records them.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use flowloom_testkit::{Rng, cargo_output, dpdk_version, skip};
use flowloom_trace::CaptureReader;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use crate::common::lab::Lab;
use crate::common::{captures, stem};

/// The variable with which the proofs start this binary as a host.
const HOST: &str = "FLOWLOOM_SOAK_HOST";
/// The time after which a packet is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// The packets on the way, at most: fewer than a CPU's backlog (1,000) and the receiver's socket hold.
const WINDOW: u64 = 768;
const SOCKET_BYTES: usize = 4 << 20;
/// The packets between two acknowledgements.
const ACK_EVERY: u64 = 64;
/// The port of numbered packets, of acknowledgements, and of packets that the function drops.
const NUMBERED: u16 = 7;
const ACKS: u16 = 8;
const DROPPED: u16 = 9;
/// The flows: many more than the tables hold.
const FLOWS: u64 = 1 << 15;

/// Two tables, of 128 and 4,096 contexts, for 32,768 flows: one evicts, one rejects, and both have timers.
const SOAK: &str = "function soak;
stateful recent {
    key 5-tuple;
    size 128;
    sweep 100ms;
    full evict oldest;
    states new, seen, often;
    reg packets: u32;
    global total: u64;
    on new -> seen (idle 2s) { packets = 1; total += 1; goto kept; }
    on seen when packets > 3 -> often (hard 200ms) { packets += 1; total += 1; goto kept; }
    on seen -> seen (idle 2s) { packets += 1; total += 1; goto kept; }
    on often stay { packets += 1; total += 1; goto kept; }
    otherwise { drop; }
}
stateful kept {
    key ip.src, l4.sport;
    size 4096;
    sweep 100ms;
    full reject;
    states new, held;
    on new -> held (idle 300ms) { goto gate; }
    on held -> held (idle 300ms) { goto gate; }
    otherwise { goto gate; }
}
stateless gate {
    when udp.dport == 9 { drop; }
    when pkt.port == 1 { forward(2); }
    when pkt.port == 2 { forward(1); }
    otherwise { drop; }
}
";

/// Forwards between port 1 and port 2, and counts the packets of each host.
const BRIDGE: &str = "function bridge;
stateful hosts {
    key eth.src;
    states heard;
    reg packets: u32;
    on heard when pkt.port == 1 { packets += 1; forward(2); }
    on heard when pkt.port == 2 { packets += 1; forward(1); }
}
";

/// An element before the table of hosts, so that the locks of that are elsewhere in the kernel.
const KINDS: &str = "stateful kinds {
    key eth.type;
    states seen;
    reg packets: u32;
    on seen { packets += 1; goto hosts; }
    otherwise { drop; }
}
";

/// Numbered packets of ever new flows, sent as fast as they are acknowledged through the function, which runs in user
/// space: none is lost or doubled, the counters of function, sender and receiver add up, and the memory of the process
/// is constant. Two cores run the function. `FLOWLOOM_SOAK_SECONDS` is the time, half an hour by default.
#[test]
#[ignore = "a proof"]
fn evidence_live_soak() {
    let test = "evidence_live_soak";
    let Some(lab) = Lab::new(test, &["ethtool"]) else { return };
    let seconds = std::env::var("FLOWLOOM_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1800u64);
    let seed = Rng::from_env(18).next_u64();
    println!("seed {seed}, {seconds} s for both modes, {FLOWS} flows, tables of 128 and 4096 contexts");
    println!("mode    engine  workers   sent numbered   dropped    packets/s  timed out    evicted  memory, MiB");
    lab.put("soak.efsm", SOAK);
    for mode in ["af_xdp", "raw"] {
        let said = lab.run(
            r#"
            quiet() { echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; }
            quiet
            host a 1; host b 2
            for name in a b; do
                ip netns exec $name bash -c "$(declare -f quiet); quiet; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter"
            done
            ip netns exec b bash -c 'echo 0 >/proc/sys/net/ipv4/conf/e2/rp_filter'
            ip -n a address add 10.9.0.1/24 dev e1; ip -n b address add 10.9.0.2/24 dev e2
            ip -n a neighbour replace 10.9.0.2 lladdr 02:00:00:00:02:01 dev e1 nud permanent
            ip -n b neighbour replace 10.9.0.1 lladdr 02:00:00:00:01:01 dev e2 nud permanent
            for end in a,e1 b,e2; do ip netns exec ${end%,*} ethtool -K ${end#*,} tx off gro on >/dev/null; done
            as_host() { FLOWLOOM_SOAK_HOST="$*" "$PEER" --ignored --exact --nocapture evidence_live::host; }
            start soak.efsm -i v1 -i v2 --mode $1 --workers 2 --state-out state.json
            ip netns exec b bash -c "$(declare -f as_host); as_host receive" >received 2>&1 &
            receiver=$!
            wait_for 'grep -qs listening received'
            ip netns exec a bash -c "$(declare -f as_host); as_host send $2 $3" >sent 2>&1 &
            sender=$!
            : >memory
            while kill -0 $sender 2>/dev/null; do
                sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/$pid/status >>memory
                sleep 1
            done
            wait $sender || { cat sent received >&2; exit 1; }
            wait $receiver || { cat sent received >&2; exit 1; }
            finish
            echo $code"#,
            &[mode, &(seconds / 2).max(12).to_string(), &seed.to_string()],
        );
        assert_eq!(said, "0\n", "{}", lab.read("err"));
        let report = lab.report();
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no `{name}`: {report}"));
        let verdict = |name: &str| report["verdicts"][name].as_u64().unwrap();
        let told = |file: &str| -> Vec<u64> {
            let text = lab.read(file);
            let line = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_else(|| panic!("{text}"));
            line.split(' ').map(|word| word.parse().unwrap()).collect()
        };
        let (sent, received) = (told("sent"), told("received"));
        let [numbered, dropped]: [u64; 2] = sent[..].try_into().unwrap();
        let [distinct, doubled, missing, acks]: [u64; 4] = received[..].try_into().unwrap();
        assert_eq!((distinct, doubled, missing), (numbered, 0, 0), "{mode}: {report}");
        // What was sent is what was received or dropped, by reason: by the function's row, or since it has no ports, as
        // what the hosts send when their interfaces are turned on.
        let element = |name: &str| {
            let elements = report["elements"].as_array().unwrap();
            elements.iter().find(|element| element["name"] == name).unwrap_or_else(|| panic!("{report}")).clone()
        };
        let of = |name: &str, counter: &str| element(name)[counter].as_u64().unwrap_or_else(|| panic!("{report}"));
        let redirected = verdict("REDIRECT");
        let others = of("recent", "no_key");
        assert_eq!((redirected, verdict("DROP")), (numbered + acks, dropped + others), "{mode}: {report}");
        assert_eq!(number("packets"), redirected + dropped + others, "{mode}: {report}");
        let total = lab.json("state.json")["recent.globals"].clone();
        assert_eq!(number("sent"), redirected, "{mode}: {report}");
        for reason in ["tx_full", "tx_refused", "rx_missed", "pass_lost", "unbound", "refused"] {
            assert_eq!(number(reason), 0, "{mode}, {reason}: {report}");
        }
        let evicted = of("recent", "contexts_evicted");
        let timed_out = of("recent", "contexts_timed_out") + of("kept", "contexts_timed_out");
        assert!(
            evicted > 0 && timed_out > 0 && of("kept", "contexts_rejected") > 0,
            "{mode}: the tables were full: {report} {total}"
        );
        let memory: Vec<u64> = lab.read("memory").lines().map(|line| line.parse().unwrap()).collect();
        // Meanwhile the tables fill, and that of the flows looked up, which is as large as there are flows.
        let settled = &memory[(memory.len() / 4).max(5)..];
        assert!(settled.len() > 3, "too few samples of the memory: {memory:?}");
        let (early, late) = settled.split_at(settled.len() / 2);
        let (early, late) = (early.iter().max().copied().unwrap_or(0), late.iter().max().copied().unwrap_or(0));
        assert!(late <= early + 1024, "{mode}: memory grew from {early} to {late} KiB: {memory:?}");
        // Both cores have run packets, each of its own flows.
        let cores = report["workers"]["cores"].as_array().unwrap_or_else(|| panic!("one core: {report}"));
        let by_core: Vec<u64> = cores.iter().map(|core| core["packets"].as_u64().unwrap()).collect();
        assert_eq!(by_core.iter().sum::<u64>(), number("packets"), "{mode}: {report}");
        assert!(by_core.iter().all(|packets| *packets > number("packets") / 4), "{mode}: {report}");
        println!(
            "{mode:7} {:7} {:>7} {numbered:>15} {dropped:>9} {:>12.0} {timed_out:>10} {evicted:>10}  {} to {}",
            report["engine"].as_str().unwrap(),
            by_core.len(),
            report["packets_per_s"].as_f64().unwrap(),
            early / 1024,
            late / 1024
        );
    }
    println!(
        "every numbered packet arrived once; packets = verdicts = sent by the hosts; nothing was lost at a device"
    );
}

#[test]
#[ignore = "a host of the proofs, which start it"]
fn host() {
    let Ok(command) = std::env::var(HOST) else { return };
    match command.split(' ').collect::<Vec<_>>().as_slice() {
        ["receive"] => receive(),
        ["send", seconds, seed] => send(Duration::from_secs(seconds.parse().unwrap()), seed.parse().unwrap()),
        other => panic!("no such command: {other:?}"),
    }
}

/// The number with which the sender ends.
const END: u64 = u64::MAX;

/// Receives numbered packets until the last; prints the numbers of distinct, doubled and missing ones, and of
/// acknowledgements sent.
fn receive() {
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), ACKS);
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 2), NUMBERED)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).unwrap();
    println!("listening");
    socket.set_read_timeout(Some(PATIENCE * 4)).unwrap();
    let (mut distinct, mut doubled, mut acks, mut acked) = (0, 0, 0, 0);
    // The first number that is missing, and those after it that have come.
    let (mut first, mut after): (u64, VecDeque<bool>) = (0, VecDeque::new());
    let mut is_waiting = false;
    loop {
        let mut bytes = [0; 64];
        let number = match socket.recv(&mut bytes) {
            Ok(_) => u64::from_be_bytes(*bytes.first_chunk().unwrap()),
            // The sender may wait for what is not yet acknowledged.
            Err(_) if is_waiting => END - 1,
            Err(error) => panic!("{distinct} packets, then none: {error}"),
        };
        if number < END - 1 {
            let at = number.checked_sub(first).map(|at| at as usize);
            match at {
                Some(at) if !after.get(at).copied().unwrap_or(false) => {
                    after.resize(after.len().max(at + 1), false);
                    after[at] = true;
                    distinct += 1;
                }
                _ => doubled += 1,
            }
            while after.front() == Some(&true) {
                after.pop_front();
                first += 1;
            }
        }
        let is_due = distinct - acked >= ACK_EVERY || number >= END - 1;
        if is_due {
            socket.send_to(&distinct.to_be_bytes(), to).unwrap();
            (acks, acked) = (acks + 1, distinct);
        }
        is_waiting = distinct > acked;
        socket.set_read_timeout(Some(if is_waiting { Duration::from_millis(5) } else { PATIENCE * 4 })).unwrap();
        if number == END {
            // The last packet is not numbered, but forwarded as they are.
            println!("\nhost: {} {doubled} {} {acks}", distinct + 1, after.len());
            return;
        }
    }
}

/// Sends numbered packets, and every sixteenth time one that is dropped; prints the numbers of both.
fn send(time: Duration, seed: u64) {
    let start = Instant::now();
    let mut rng = Rng::new(seed);
    let acks = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), ACKS)).unwrap();
    acks.set_read_timeout(Some(PATIENCE)).unwrap();
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    let server = Ipv4Addr::new(10, 9, 0, 2);
    let mut send = |port: u16, number: u64| {
        let flow = rng.below(FLOWS as usize) as u64;
        let [.., a, b, c] = (flow as u32).to_be_bytes();
        let source = Ipv4Addr::new(10, 100 + a, b, c);
        let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(source.octets().iter().chain(&server.octets()));
        packet.extend([4000u16, port, 16, 0].iter().flat_map(|word| word.to_be_bytes()));
        packet.extend(number.to_be_bytes());
        sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(server, 0)).unwrap();
    };
    let (mut numbered, mut dropped, mut acked) = (0u64, 0u64, 0u64);
    let wait = |acked: &mut u64, numbered: u64| {
        let mut bytes = [0; 8];
        match acks.recv(&mut bytes) {
            Ok(_) => *acked = (*acked).max(u64::from_be_bytes(bytes)),
            Err(error) => panic!("{numbered} packets sent, {acked} acknowledged: {error}"),
        }
    };
    while start.elapsed() < time {
        while numbered - acked >= WINDOW {
            wait(&mut acked, numbered);
        }
        send(NUMBERED, numbered);
        numbered += 1;
        if numbered.is_multiple_of(16) {
            send(DROPPED, 0);
            dropped += 1;
        }
    }
    while acked < numbered {
        wait(&mut acked, numbered);
    }
    send(NUMBERED, END);
    println!("\nhost: {} {dropped}", numbered + 1);
}

/// A TCP transfer of iperf3 between two hosts survives that a function is attached between them, replaced by another one,
/// detached and attached again, for every way to run it: no reset, no second connection, and data in every second. The
/// function that replaces it has the table of hosts with their entries.
#[test]
#[ignore = "a proof"]
fn evidence_live_transfer() {
    let test = "evidence_live_transfer";
    let Some(lab) = Lab::new(test, &["ethtool", "iperf3"]) else { return };
    lab.put("bridge.efsm", BRIDGE);
    lab.put("other.efsm", BRIDGE.replace("stateful hosts", &format!("{KINDS}stateful hosts")));
    println!("mode     seconds   MB received  least MB a second  segments sent again  resets  reloads");
    for mode in ["native", "skb", "af_xdp", "raw"] {
        let said = lab.run(
            r#"
            host a 1; host b 2
            ip -n a address add 10.9.0.1/24 dev e1; ip -n b address add 10.9.0.2/24 dev e2
            for end in a,e1 b,e2; do ip netns exec ${end%,*} ethtool -K ${end#*,} tx off gro on >/dev/null; done
            # Without the function, Linux forwards.
            ip link add bridge0 type bridge; ip link set bridge0 up
            ip link set v1 master bridge0; ip link set v2 master bridge0
            resets() { awk '/^Tcp: [0-9]/ { print $9 + $15 }' /proc/net/snmp; }
            in_host() { ip netns exec $1 bash -c "$(declare -f resets); resets"; }
            ip netns exec b iperf3 -s -1 --forceflush >server 2>&1 &
            server=$!
            wait_for 'grep -qs listening server'
            before=$(($(in_host a) + $(in_host b)))
            ip netns exec a iperf3 -c 10.9.0.2 -t 30 -i 1 -J >transfer.json 2>&1 &
            client=$!
            sleep 1.5
            for round in 1 2; do
                start bridge.efsm -i v1 -i v2 --mode $1
                sleep 0.5
                "$FLOWLOOM" reload $pid other.efsm --json >reloaded.$round
                sleep 0.5
                "$FLOWLOOM" reload $pid bridge.efsm --json >back.$round
                sleep 1
                finish
                [ $code = 0 ]
                tail -n 1 out >report.$round
                sleep 1
            done
            after=$(($(in_host a) + $(in_host b)))
            kill -0 $client
            code=0; wait $client || code=$?
            wait $server
            echo $code $((after - before))"#,
            &[mode],
        );
        let transfer = lab.json("transfer.json");
        assert_eq!(said, "0 0\n", "{mode}: {transfer}");
        assert_eq!(transfer["start"]["connected"].as_array().map(Vec::len), Some(1), "{mode}: {transfer}");
        let intervals = transfer["intervals"].as_array().unwrap();
        let bytes: Vec<u64> = intervals.iter().map(|one| one["sum"]["bytes"].as_u64().unwrap()).collect();
        let least = bytes.iter().min().copied().unwrap_or(0);
        assert!(bytes.len() >= 30 && least > 0, "{mode}: {bytes:?}");
        for reload in ["reloaded.1", "back.1", "reloaded.2", "back.2"] {
            let reloaded = lab.json(reload);
            let kept = &reloaded["kept"][0];
            assert!(kept[0] == "hosts" && kept[1].as_u64() >= Some(2), "{mode}, {reload}: {reloaded}");
        }
        for round in ["report.1", "report.2"] {
            let redirected = lab.json(round)["verdicts"]["REDIRECT"].as_u64();
            assert!(redirected > Some(100), "{mode}: the function forwarded it: {redirected:?}");
        }
        let end = &transfer["end"];
        println!(
            "{mode:8} {:7.1} {:>13} {:>18} {:>20} {:>7} {:>8}",
            end["sum_sent"]["seconds"].as_f64().unwrap(),
            end["sum_received"]["bytes"].as_u64().unwrap() / 1_000_000,
            least / 1_000_000,
            end["sum_sent"]["retransmits"],
            0,
            4
        );
    }
}

/// DPDK's virtual devices, built in for this: `net_pcap` forwards every capture that `FLOWLOOM_TRACES` names bit for
/// bit, from one port to the other, and the tests with `net_ring` and `net_af_packet` on veth pass.
#[test]
#[ignore = "a proof"]
fn evidence_live_dpdk() {
    let test = "evidence_live_dpdk";
    let version = match dpdk_version() {
        Ok(version) => version,
        Err(reason) => return skip(test, &reason),
    };
    let captures = captures(test);
    if captures.is_empty() {
        return;
    }
    let tests =
        cargo_output(&["test", "--release", "-p", "flowloom-ports", "--features", "dpdk", "--test", "main", "dpdk"]);
    let passed = tests.lines().find(|line| line.starts_with("test result: ok.")).unwrap_or_else(|| panic!("{tests}"));
    assert!(!tests.contains("SKIP"), "{tests}");
    println!("DPDK {version}; tests of the crate `ports`: {passed}");
    let built = ["build", "--release", "-p", "flowloom-cli", "--features", "dpdk", "--message-format", "json"];
    let binary =
        cargo_output(&built).lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).find_map(
            |message| message["executable"].as_str().filter(|path| path.ends_with("/flowloom")).map(str::to_owned),
        );
    let binary = binary.expect("a command");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("forward.efsm"), "function forwarder;\nstateless all { always { forward(2); } }\n").unwrap();
    println!("capture                  packets  bytes");
    for capture in captures {
        let packets: Vec<Vec<u8>> =
            CaptureReader::open(&capture).unwrap().map(|packet| packet.unwrap().bytes).collect();
        let mut writer = flowloom_trace::CaptureWriter::create(path("in.pcap")).unwrap();
        for (number, bytes) in (0..).zip(&packets) {
            writer.write(number, 1, bytes.len() as u32, None, bytes).unwrap();
        }
        writer.finish().unwrap();
        let devices =
            [format!("net_pcap0,rx_pcap={}", path("in.pcap")), format!("net_pcap1,tx_pcap={}", path("out.pcap"))];
        let count = packets.len().to_string();
        let ran = Command::new(&binary)
            .args(["run", &path("forward.efsm"), "-i", &devices[0], "-i", &devices[1], "--mode", "dpdk"])
            .args(["--no-huge-pages", "--json", "-q", "-c", &count])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let found: Vec<Vec<u8>> =
            CaptureReader::open(path("out.pcap")).unwrap().map(|packet| packet.unwrap().bytes).collect();
        assert!(found == packets, "{}: {} of {count} packets came out, or others", stem(&capture), found.len());
        let bytes: usize = packets.iter().map(Vec::len).sum();
        println!("{:23} {count:>8} {bytes:>8}", stem(&capture));
    }
}
