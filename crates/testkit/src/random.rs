use crate::builder::{Extension, PacketBuilder};
use crate::rng::Rng;

impl PacketBuilder {
    /// A packet of any kind that the parse graph knows, between hosts and ports of a pool, so that flows meet again, in both
    /// directions: `hosts` addresses a family and `hosts` ports (at least 1 of each). About one in four has a tag, options, extension headers or
    /// a fragment; one in eight UDP packets has no checksum. Checksums and lengths are right.
    pub fn random(rng: &mut Rng, hosts: usize) -> PacketBuilder {
        let hosts = hosts.clamp(1, 250);
        let mac = |host: u8| [2, 0, 0, 0, 0, host];
        let (src, dst) = (1 + rng.below(hosts) as u8, 1 + rng.below(hosts) as u8);
        let (sport, dport) = (1000 + rng.below(hosts) as u16, 1000 + rng.below(hosts) as u16);
        let mut builder =
            PacketBuilder::new().eth(mac(src), mac(dst)).tos(rng.next_u64() as u8).ttl(1 + rng.below(255) as u8);
        if rng.chance(1, 4) {
            for _ in 0..=rng.below(2) {
                let ethertype = *rng.pick(&[0x8100, 0x88a8]);
                builder = builder.tag(ethertype, rng.next_u64() as u16);
            }
        }
        let v6 = rng.chance(1, 2);
        builder = if v6 { random_ipv6(rng, builder, src, dst) } else { random_ipv4(rng, builder, src, dst) };
        builder = match rng.below(8) {
            0..3 => {
                let (seq, ack) = (rng.next_u64() as u32, rng.next_u64() as u32);
                let (any, window) = (rng.next_u64() as u8, rng.next_u64() as u16);
                let flags = *rng.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x04, any]);
                let tcp = builder.tcp(sport, dport).tcp_seq(seq, ack).tcp_flags(flags).tcp_window(window, 0);
                match rng.below(4) {
                    0 => tcp.tcp_options(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7]),
                    1 => tcp.tcp_options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
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
        builder.payload(&payload).pad_to(if rng.chance(1, 2) { 60 } else { 0 })
    }
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
