// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every catalogue field in a key, a condition, an update and a write, and random keys of several fields.

use std::fmt::Write as _;

use flowloom_testkit::{PacketBuilder, Rng, mutate};
use flowloom_wire::field::FieldId;
use flowloom_wire::{Graph, KeySpec, Layers};

use super::agree::{Step, agree, function, random_steps, steps_of};

const GAPS_NS: [u64; 6] = [0, 0, 1, 4, 5, 6];

/// A function that uses one field in every supported way.
fn about(field: FieldId) -> String {
    let name = field.name();
    let mut text =
        format!("function f;\nmeta m;\nstateful e {{\n key {name};\n size 8;\n states a, b;\n reg n;\n reg k: u8;\n");
    if field.width_bits() <= 64 {
        let most = if field.width_bits() == 64 { u64::MAX } else { (1 << field.width_bits()) - 1 };
        let half = most / 2;
        writeln!(
            text,
            " on a when {name} > {half} && pkt.len & 1 == 0 -> b (idle 5ns) {{ n = {name}; m = {name}; goto w; }}"
        )
        .unwrap();
        writeln!(text, " on a when {name} in 0..{half} stay {{ n += {name}; k ^= 1; forward(n & 0x7f); }}").unwrap();
        writeln!(text, " on b when {name} & 1 == 1 stay {{ n = {name} << 1; m = n ^ {name}; goto w; }}").unwrap();
        writeln!(text, " on b stay {{ n = ~{name}; forward(n & 0xff); }}").unwrap();
    } else {
        let near = if name.starts_with("ip.") { "10.0.0.2/31" } else { "2001:db8::2/127" };
        writeln!(text, " on a when {name} in {near} -> b (idle 5ns) {{ n += 1; goto w; }}").unwrap();
        writeln!(text, " on a when {name} != 2001:db8::1 stay {{ n += 1; pass; }}").unwrap();
        writeln!(text, " on b when {name} == 2001:db8::3 stay {{ n += 2; goto w; }}").unwrap();
        writeln!(text, " on b when !({name} in 2001::/16) -> a {{ n = 0; goto w; }}").unwrap();
    }
    text.push_str(" otherwise { m = 3; goto w; }\n}\nstateless w {\n");
    match (field.is_writable(), field.width_bits()) {
        (false, _) => {}
        (true, 65..) => {
            let other = field.partner().map_or_else(|| name.clone(), FieldId::name);
            writeln!(text, " when pkt.len & 6 == 0 {{ {name} = {other}; {other} = {name}; forward(1); }}").unwrap();
            writeln!(text, " when pkt.len & 2 == 0 {{ {name} = fffe::1:0:ffff; forward(2); }}").unwrap();
            if name.starts_with("ip.") {
                writeln!(text, " when pkt.len & 1 == 0 {{ {name} = 255.254.0.1; forward(3); }}").unwrap();
            }
        }
        (true, _) => {
            writeln!(text, " when pkt.len & 6 == 0 {{ {name} = m; forward(1); }}").unwrap();
            writeln!(text, " when pkt.len & 6 == 2 {{ {name} = ~{name}; forward(2); }}").unwrap();
            writeln!(text, " when pkt.len & 6 == 4 {{ {name} = 0; forward(3); }}").unwrap();
            writeln!(text, " when pkt.len & 1 == 0 {{ {name} -= 1; forward(4); }}").unwrap();
        }
    }
    text.push_str(" always { forward(m & 0xff); }\n}\n");
    text
}

/// A random packet; in three of four cases one with the field, if one is found soon.
fn packet_for(rng: &mut Rng, field: FieldId) -> Vec<u8> {
    let wants = rng.chance(3, 4);
    let mut packet = Vec::new();
    for _ in 0..200 {
        let is_inner = field.name().starts_with("inner.") || field.name().starts_with("gtpu.");
        packet = if is_inner { PacketBuilder::random_tunnel(rng, 4) } else { PacketBuilder::random(rng, 4) }.build();
        if rng.chance(1, 8) {
            mutate(rng, &mut packet);
        }
        if !wants || Layers::parse(Graph::standard(), &packet).is_present(field) {
            break;
        }
    }
    packet
}

#[test]
fn every_field_is_lowered_in_every_role() {
    let mut rng = Rng::from_env(0x6669_656c);
    for field in FieldId::all() {
        let function = function(&about(field));
        let steps = steps_of(&mut rng, 200, 1 << 40, &GAPS_NS, |rng| packet_for(rng, field));
        let coverage = agree(&function, &steps, 5, None);
        // Lengths and types take at most half of their range.
        let reached = coverage.elements[0].rows.iter().flat_map(|r| r.values()).filter(|n| **n > 0).count();
        assert!(reached >= 1, "{}: nothing matches", field.name());
    }
}

#[test]
fn random_keys_equal_those_of_the_machine() {
    let mut rng = Rng::from_env(0x6b65_7973);
    let all: Vec<FieldId> = FieldId::all().collect();
    // Fields that are often present together, so that keys are rarely absent.
    let common = "ip.src ip.dst ip.proto l4.sport l4.dport ip.tos ip.ttl ip.version eth.src eth.dst eth.type pkt.port pkt.len \
        tcp.payload_len tcp.seq tcp.is_syn tcp.flags ipv6.flow_label ipv6.src ipv6.dst ipv4.src ipv4.dst ipv4.frag vlan.id \
        vlan.pcp udp.sport udp.dport tcp.doff";
    let common: Vec<FieldId> = common.split(' ').map(|name| FieldId::by_name(name).unwrap()).collect();
    let (mut keyed, mut biflows, mut longest) = (0, 0, 0);
    for round in 0..400 {
        let pool = if rng.chance(1, 8) { &all } else { &common };
        let mut fields: Vec<FieldId> = Vec::new();
        let most = if rng.chance(1, 8) { 14 } else { 5 };
        for _ in 0..=rng.below(most) {
            let field = *rng.pick(pool);
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        let mut biflow = rng.chance(1, 3);
        if biflow {
            for partner in fields.clone().into_iter().filter_map(FieldId::partner) {
                if !fields.contains(&partner) {
                    fields.insert(rng.below(fields.len() + 1), partner);
                }
            }
            biflow = KeySpec::of_fields(&fields, true).is_ok();
        }
        let names: Vec<_> = fields.iter().map(|f| f.name()).collect();
        let names = names.join(", ");
        let key = if biflow { format!("biflow({names})") } else { names };
        // Sometimes after another element, so that the headers are not known at entry.
        let first = if rng.chance(1, 2) { "stateless first { always { goto e; } }" } else { "" };
        let text = format!(
            "function f; {first} stateful e {{ key {key}; size 40; states a, b; reg n: u8; \
             on a -> b {{ n += 1; forward(n); }} on b when n < 5 stay {{ n += 1; forward(n); }} on b -> a {{ n = 0; pass; }} \
             otherwise {{ forward(200); }} }}"
        );
        let function = function(&text);
        let steps = random_steps(&mut rng, 120, 1 + round % 3, &GAPS_NS);
        let coverage = agree(&function, &steps, 1000, None);
        let e = coverage.elements.last().unwrap();
        keyed += u64::from(e.flows_looked_up > 0);
        biflows += u64::from(biflow);
        longest = longest.max(KeySpec::of_fields(&fields, biflow).unwrap().key_bytes());
    }
    println!("{keyed} of 400 keys were found in packets, {biflows} of both directions, the longest of {longest} bytes");
    assert!(keyed > 250 && biflows > 40 && longest > 64, "{keyed} {biflows} {longest}");
}

#[test]
fn biflow_endpoints_are_compared_as_big_endian_numbers() {
    let function = function(
        "function f; stateful e { key biflow(l4.sport, l4.dport, ip.src, ip.dst, eth.src, eth.dst); states a; reg n: u8; \
         on a stay { n += 1; forward(n); } }",
    );
    // Endpoints whose order depends on the byte order, with a difference in each position of each part.
    let mut ends: Vec<(u16, [u8; 16], [u8; 6])> = Vec::new();
    let (port, address, mac) = (0x0100, [1; 16], [2; 6]);
    ends.extend([0x0100, 0x00ff, 0xff00, 0x01ff].map(|p| (p, address, mac)));
    for at in 0..16 {
        let mut other = address;
        other[at] = if at % 2 == 0 { 0 } else { 0xff };
        other[(at + 1) % 16] = 1 ^ other[at];
        ends.push((port, other, mac));
    }
    for at in 0..6 {
        let mut other = mac;
        (other[at], other[(at + 1) % 6]) = (at as u8, 0xf0);
        ends.push((port, address, other));
    }
    let mut steps = Vec::new();
    for a in &ends {
        for b in &ends {
            let builder = PacketBuilder::new().eth(a.2, b.2);
            let v6 = builder.clone().ipv6(a.1, b.1).udp(a.0, b.0).build();
            let v4 = |address: [u8; 16]| [address[0], address[5], address[10], address[15]];
            let v4 = builder.ipv4(v4(a.1), v4(b.1)).udp(a.0, b.0).build();
            steps.extend([v4, v6].map(|bytes| Step { bytes, port: 1, now_ns: 0 }));
        }
    }
    let coverage = agree(&function, &steps, 1, None);
    let pairs = (ends.len() * (ends.len() + 1) / 2) as u64;
    println!("{} flows of {} packets", coverage.elements[0].flows_looked_up, steps.len());
    assert!((pairs..2 * pairs).contains(&coverage.elements[0].flows_looked_up));
}
