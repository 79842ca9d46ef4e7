// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's connection tracking as a reference: packets are replayed into a router in a network namespace, and
//! `nft` logs the `ct state` of each. A packet's number is encoded in its source MAC address, which connection tracking
//! ignores.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use flowloom_testkit::scratch::Scratch;
use flowloom_testkit::skip;
use flowloom_trace::CaptureWriter;
use flowloom_verify::Arrival;

/// Verdict of the kernel on each packet; those that it never saw (no IP, not routed, fragments) are in neither set.
#[derive(Debug, Default)]
pub struct Opinion {
    pub valid: BTreeSet<usize>,
    pub invalid: BTreeSet<usize>,
}

/// Sends the frames of a nanosecond pcap with TTL 64, so that every packet is routed.
const SEND: &str = r#"
import socket, struct, sys
def hops(b):
    b = bytearray(b)
    if b[12:14] == b'\x08\x00':
        end = 14 + 4 * (b[14] & 15)
        b[22] = 64
        b[24:26] = b'\0\0'
        total = sum(struct.unpack('>%dH' % ((end - 14) // 2), bytes(b[14:end])))
        while total >> 16:
            total = (total & 65535) + (total >> 16)
        b[24:26] = struct.pack('>H', ~total & 65535)
    else:
        b[21] = 64
    return bytes(b)
data, at = open(sys.argv[1], 'rb').read(), 24
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('given', 0))
while at + 16 <= len(data):
    size = struct.unpack('<I', data[at + 8:at + 12])[0]
    out.send(hops(data[at + 16:at + 16 + size]))
    at += 16 + size
"#;

/// A router with input `taken` and output `left`: a connection is tracked only after its packet has left.
const ROUTER: &str = r#"
ip link set lo up
ip link add given mtu 65535 type veth peer name taken mtu 65535 address 02:00:00:00:01:02
ip link add left mtu 65535 type veth peer name gone mtu 65535
for one in given taken left gone; do
    sysctl -qw net.ipv6.conf.$one.accept_dad=0
    ip link set $one up
done
sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.taken.rp_filter=0
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
sysctl -qw net.netfilter.nf_conntrack_tcp_loose=$1 net.netfilter.nf_conntrack_checksum=0
ip address add 169.254.77.1/24 dev left
ip route add default via 169.254.77.77 dev left onlink
ip -6 route add default via fe80::77 dev left
ip neigh replace 169.254.77.77 lladdr 02:00:00:00:02:02 dev left nud permanent
ip -6 neigh replace fe80::77 lladdr 02:00:00:00:02:02 dev left nud permanent
nft -f - <<'RULES'
table inet judge {
    set invalid { type ether_addr; size 1000000; flags dynamic; }
    set valid { type ether_addr; size 1000000; flags dynamic; }
    chain see {
        type filter hook prerouting priority 0; policy accept;
        iifname != "taken" return
        ct state invalid add @invalid { ether saddr } drop
        add @valid { ether saddr }
    }
}
RULES
taskset -c 0 python3 send.py frames.pcap
sleep 0.2
nft -j list set inet judge invalid >invalid
nft -j list set inet judge valid >valid
"#;

/// Verdicts of the kernel, as a router that picks up connections mid-stream if `loose`. `None` and a `SKIP` line where
/// the kernel is not available.
pub fn opinion(test: &str, packets: &[Arrival], loose: bool) -> Option<Opinion> {
    for tool in ["nft", "ip", "python3", "taskset", "unshare"] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            skip(test, &format!("`{tool}` is not installed"));
            return None;
        }
    }
    let scratch = Scratch::new();
    scratch.put("send.py", SEND.as_bytes());
    let failed = |what: &dyn std::fmt::Display| -> ! { panic!("{test}: {what}") };
    let mut writer = CaptureWriter::create(scratch.path("frames.pcap")).unwrap_or_else(|e| failed(&e));
    for (number, packet) in packets.iter().enumerate().filter(|(_, packet)| is_ip(&packet.bytes)) {
        let mut frame = vec![2, 0, 0, 0, 1, 2, 2, 0];
        frame.extend((number as u32).to_be_bytes());
        frame.extend(&packet.bytes[12..]);
        writer.write(0, 1, frame.len() as u32, None, &frame).unwrap_or_else(|e| failed(&e));
    }
    writer.finish().unwrap_or_else(|e| failed(&e));
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "bash", "-eu", "-c", ROUTER, test, if loose { "1" } else { "0" }]);
    let output = command.current_dir(scratch.path("")).stdin(Stdio::null()).output().unwrap_or_else(|e| failed(&e));
    if !output.status.success() {
        skip(test, &format!("no connection tracking here: {}", String::from_utf8_lossy(&output.stderr).trim()));
        return None;
    }
    let read = |name: &str| numbers(&std::fs::read_to_string(scratch.path(name)).unwrap_or_else(|e| failed(&e)));
    Some(Opinion { valid: read("valid"), invalid: read("invalid") })
}

fn is_ip(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([8, 0]) => frame.len() >= 34 && frame.len() >= 14 + 4 * usize::from(frame[14] & 15),
        Some([0x86, 0xdd]) => frame.len() >= 54,
        _ => false,
    }
}

/// The numbers encoded in the addresses that begin with 02:00.
fn numbers(text: &str) -> BTreeSet<usize> {
    let addresses = text.split('"').filter_map(|word| word.strip_prefix("02:00:"));
    addresses.filter_map(|rest| usize::from_str_radix(&rest.replace(':', ""), 16).ok()).collect()
}
