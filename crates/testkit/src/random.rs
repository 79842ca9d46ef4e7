// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::builder::{Extension, PacketBuilder};
use crate::gtpu::Gtpu;
use crate::rng::Rng;

impl PacketBuilder {
    /// A packet of any kind in the parse graph, with addresses and ports from a small pool, so that flows recur in both
    /// directions: `hosts` addresses per family and `hosts` ports (at least 1 of each). One in four has tags, one in
    /// four IP options or extension headers, one in eight MPLS labels; one in eight is a tunnel around such a packet.
    /// One in eight UDP packets has no checksum. Other checksums and all lengths are valid.
    pub fn random(rng: &mut Rng, hosts: usize) -> PacketBuilder {
        let is_tunnel = rng.chance(1, 8);
        PacketBuilder::random_of(rng, hosts, is_tunnel)
    }

    /// Like [`PacketBuilder::random`], but always a tunnel.
    pub fn random_tunnel(rng: &mut Rng, hosts: usize) -> PacketBuilder {
        PacketBuilder::random_of(rng, hosts, true)
    }

    fn random_of(rng: &mut Rng, hosts: usize, is_tunnel: bool) -> PacketBuilder {
        let hosts = hosts.clamp(1, 250);
        let mac = |host: u8| [2, 0, 0, 0, 0, host];
        let (src, dst) = (1 + rng.below(hosts) as u8, 1 + rng.below(hosts) as u8);
        let mut builder = PacketBuilder::new().eth(mac(src), mac(dst));
        if rng.chance(1, 4) {
            for _ in 0..=rng.below(2) {
                let ethertype = *rng.pick(&[0x8100, 0x88a8]);
                builder = builder.tag(ethertype, rng.next_u64() as u16);
            }
        }
        if rng.chance(1, 8) {
            for _ in 0..=rng.below(5) {
                builder = builder.mpls(rng.next_u64() as u32, rng.next_u64() as u8, rng.next_u64() as u8);
            }
        }
        let (builder, v6) = random_network(rng, builder, src, dst);
        let builder = if is_tunnel {
            let hosts_inside = (1 + rng.below(hosts) as u8, 1 + rng.below(hosts) as u8);
            let inner = random_network(rng, PacketBuilder::new(), hosts_inside.0, hosts_inside.1);
            let inner = random_transport(rng, inner.0, hosts, inner.1);
            let udp = builder.udp(*rng.pick(&[2152, 4000]), 2152);
            let udp = if rng.chance(1, 2) { udp.udp_without_checksum() } else { udp };
            udp.tunnel(&random_gtpu(rng, hosts), &inner)
        } else {
            random_transport(rng, builder, hosts, v6)
        };
        builder.pad_to(if rng.chance(1, 2) { 60 } else { 0 })
    }
}

/// Adds a random IP header. Returns true if it is IPv6.
fn random_network(rng: &mut Rng, builder: PacketBuilder, src: u8, dst: u8) -> (PacketBuilder, bool) {
    let builder = builder.tos(rng.next_u64() as u8).ttl(1 + rng.below(255) as u8);
    let v6 = rng.chance(1, 2);
    (if v6 { random_ipv6(rng, builder, src, dst) } else { random_ipv4(rng, builder, src, dst) }, v6)
}

fn random_transport(rng: &mut Rng, builder: PacketBuilder, hosts: usize, v6: bool) -> PacketBuilder {
    let (sport, dport) = (1000 + rng.below(hosts) as u16, 1000 + rng.below(hosts) as u16);
    let builder = match rng.below(8) {
        0..3 => {
            let (seq, ack) = (rng.next_u64() as u32, rng.next_u64() as u32);
            let (any, window) = (rng.next_u64() as u8, rng.next_u64() as u16);
            let flags = *rng.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x04, any]);
            let tcp = builder.tcp(sport, dport).tcp_seq(seq, ack).tcp_flags(flags).tcp_window(window, 0);
            match rng.below(6) {
                0 => tcp.tcp_options(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7]),
                1 => tcp.tcp_options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
                2 => {
                    let options = random_options(rng);
                    tcp.tcp_options(&options)
                }
                _ => tcp,
            }
        }
        3..6 => {
            let udp = builder.udp(sport, dport);
            if rng.chance(1, 8) { udp.udp_without_checksum() } else { udp }
        }
        6 => builder.icmp(if v6 { 128 } else { 8 }, 0, sport, rng.next_u64() as u16),
        _ => {
            let proto = *rng.pick(&[2, 47, 50, 89, 132]);
            builder.proto(proto)
        }
    };
    let len = if rng.chance(1, 8) { rng.below(1400) } else { rng.below(32) };
    let payload = rng.bytes(len);
    builder.payload(&payload)
}

/// Random TCP options with the window scale at a random offset; sometimes malformed.
fn random_options(rng: &mut Rng) -> Vec<u8> {
    let mut options = vec![1; rng.below(38)];
    while options.len() < 30 && rng.chance(1, 2) {
        let len = 2 + rng.below(6) as u8;
        let kind = *rng.pick(&[2, 4, 5, 8, 30, 254]);
        options.extend([kind, len]);
        options.resize(options.len() + usize::from(len) - 2, 3);
    }
    if options.len() < 38 {
        options.extend([3, 3, rng.below(15) as u8]);
    }
    if rng.chance(1, 4) && !options.is_empty() {
        let at = rng.below(options.len());
        options[at] = *rng.pick(&[0, 1, 2, 3, 4, 40, 255]);
    }
    options.truncate(40);
    options
}

fn random_gtpu(rng: &mut Rng, hosts: usize) -> Gtpu {
    let mut gtpu = Gtpu::new(rng.below(hosts) as u32);
    if rng.chance(1, 8) {
        gtpu.kind = *rng.pick(&[1, 26, 254]);
    }
    gtpu.sequence = rng.chance(1, 4).then(|| rng.next_u64() as u16);
    gtpu.npdu = rng.chance(1, 4).then(|| rng.next_u64() as u8);
    if rng.chance(1, 4) {
        let count = 1 + rng.below(5);
        gtpu.extensions = (0..count).map(|_| (1 + rng.below(255) as u8, 1 + rng.below(3) as u8)).collect();
    }
    gtpu
}

fn random_ipv4(rng: &mut Rng, builder: PacketBuilder, src: u8, dst: u8) -> PacketBuilder {
    let id = rng.next_u64() as u16;
    let mut builder = builder.ipv4([10, 0, 0, src], [10, 0, 0, dst]).ipv4_id(id, rng.chance(1, 2));
    if rng.chance(1, 4) {
        // Router alert, no-operations, no-operations and an end.
        let choices: [&[u8]; 3] = [&[0x94, 4, 0, 0], &[1; 40], &[1, 1, 1, 1, 1, 0]];
        let options = rng.pick(&choices);
        builder = builder.ipv4_options(options);
    }
    if rng.chance(1, 8) {
        let offset_units = rng.below(3) as u16;
        builder = builder.fragment(offset_units, rng.chance(1, 2));
    }
    builder
}

fn random_ipv6(rng: &mut Rng, builder: PacketBuilder, src: u8, dst: u8) -> PacketBuilder {
    let address = |host: u8| [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let mut builder = builder.ipv6(address(src), address(dst)).flow_label(rng.next_u64() as u32);
    if rng.chance(1, 4) {
        for _ in 0..=rng.below(5) {
            let units = if rng.chance(1, 8) { rng.below(40) as u8 } else { rng.below(3) as u8 };
            builder = builder.extension(match rng.below(8) {
                0 | 1 => Extension::HopByHop(units),
                2 | 3 => Extension::Destination(units),
                4 => Extension::Routing(units),
                5 => Extension::Authentication(units),
                _ => {
                    let offset_units = if rng.chance(1, 4) { 1 } else { 0 };
                    Extension::Fragment { offset_units, more: rng.chance(1, 4) }
                }
            });
        }
    }
    builder
}
