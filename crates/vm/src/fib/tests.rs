// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

const TABLE: &str = r#"{
  "interfaces": [
    {"port": 1, "mac": "02:00:00:00:00:01", "addresses": ["10.0.1.1/24", "2001:db8:1::1/64"]},
    {"port": 2, "mac": "02:00:00:00:00:02", "mtu": 1400, "addresses": ["10.0.2.1/24", "2001:db8:2::1/64"]},
    {"port": 3, "mac": "02:00:00:00:00:03", "forwarding": false}
  ],
  "routes": [
    {"to": "192.0.2.0/24", "via": "10.0.2.7", "port": 2},
    {"to": "192.0.2.0/24", "via": "10.0.1.9", "port": 1, "metric": 5},
    {"to": "192.0.2.128/25", "kind": "blackhole"},
    {"to": "198.51.100.0/24", "kind": "unreachable"},
    {"to": "203.0.113.0/24", "kind": "prohibit"},
    {"to": "2001:db8:9::/48", "via": "2001:db8:2::7", "port": 2}
  ],
  "neighbours": [
    {"address": "10.0.2.7", "port": 2, "mac": "02:00:00:00:07:07"},
    {"address": "2001:db8:2::7", "port": 2, "mac": "02:00:00:00:07:06"}
  ]
}"#;

fn params(family: u8, total_len: u16, interface: u32, destination: &[u8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = family;
    bytes[6..8].copy_from_slice(&total_len.to_le_bytes());
    bytes[8..12].copy_from_slice(&interface.to_le_bytes());
    bytes[32..32 + destination.len()].copy_from_slice(destination);
    bytes[48..64].fill(0xaa);
    bytes
}

fn ask(params: [u8; 64], flags: u32) -> (i64, [u8; 64]) {
    let table = Table::from_json(TABLE).unwrap();
    let mut request = Request::parse(&params, flags).unwrap();
    let answer = table.lookup(&mut request);
    (answer, request.emit(params))
}

#[test]
fn a_route_gives_port_router_and_addresses() {
    let (answer, found) = ask(params(2, 100, 1, &[192, 0, 2, 1]), 0);
    assert_eq!(answer, 0);
    assert_eq!((found[6..8].to_vec(), found[8..12].to_vec()), (1400_u16.to_le_bytes().to_vec(), vec![2, 0, 0, 0]));
    assert_eq!(found[32..36], [10, 0, 2, 7]);
    assert_eq!(found[48..64], [0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 7, 7]);
    let to = "2001:db8:9::5".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let (answer, found) = ask(params(10, 100, 1, &to), 0);
    assert_eq!((answer, found[8], found[12..16].to_vec()), (0, 2, 1024_u32.to_le_bytes().to_vec()));
}

#[test]
fn packets_not_forwarded_have_a_reason() {
    let cases: [(i64, [u8; 4], u32, u16, u32); 11] = [
        (answer::NOT_FWDED, [127, 0, 0, 9], 1, 100, 0),
        (answer::BLACKHOLE, [192, 0, 2, 200], 1, 100, 0),
        (answer::UNREACHABLE, [198, 51, 100, 1], 1, 100, 0),
        (answer::PROHIBIT, [203, 0, 113, 1], 1, 100, 0),
        (answer::NOT_FWDED, [8, 8, 8, 8], 1, 100, 0),
        (answer::NOT_FWDED, [10, 0, 2, 1], 1, 100, 0),
        (answer::NOT_FWDED, [10, 0, 2, 255], 1, 100, 0),
        (answer::NO_NEIGH, [10, 0, 2, 9], 1, 100, 0),
        (answer::FRAG_NEEDED, [192, 0, 2, 1], 1, 1401, 0),
        (answer::FWD_DISABLED, [192, 0, 2, 1], 3, 100, 0),
        (answer::NO_DEVICE, [192, 0, 2, 1], 9, 100, 0),
    ];
    for (expected, to, interface, len, flags) in cases {
        assert_eq!(ask(params(2, len, interface, &to), flags).0, expected, "{to:?} from {interface}");
    }
    // Without the neighbour the route is returned all the same.
    assert_eq!(ask(params(2, 100, 1, &[10, 0, 2, 9]), 0).1[8], 2);
    // The neighbour is not looked up if that is not asked for.
    let (answer, found) = ask(params(2, 100, 1, &[10, 0, 2, 9]), 4);
    assert_eq!((answer, found[52]), (0, 0xaa));
    let link_local = "fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    assert_eq!(ask(params(10, 100, 1, &link_local), 0).0, answer::NOT_FWDED);
}

#[test]
fn a_lookup_for_sending_stays_on_its_interface() {
    let (answer, found) = ask(params(2, 100, 1, &[192, 0, 2, 1]), 2 | 4);
    assert_eq!((answer, found[8], found[12]), (0, 1, 5));
}

#[test]
fn the_source_is_an_address_of_the_interface() {
    let (answer, found) = ask(params(2, 100, 1, &[192, 0, 2, 1]), 16);
    assert_eq!((answer, found[16..20].to_vec()), (0, vec![10, 0, 2, 1]));
}

#[test]
fn addresses_of_one_link_are_judged_before_the_interface() {
    for address in ["fe80::9", "ff02::1", "::1"] {
        let to = address.parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert_eq!(ask(params(10, 100, 9, &to), 0).0, answer::NOT_FWDED, "{address}");
    }
    let to = "2001:db8:9::5".parse::<std::net::Ipv6Addr>().unwrap().octets();
    assert_eq!(ask(params(10, 100, 9, &to), 0).0, answer::NO_DEVICE);
}

#[test]
fn direct_lookups_ask_a_table() {
    const DIRECT: u32 = 1;
    const TBID: u32 = 8;
    let in_table = |table: u32, flags| {
        let mut params = params(2, 100, 1, &[192, 0, 2, 1]);
        params[48..52].copy_from_slice(&table.to_le_bytes());
        let (answer, found) = ask(params, flags);
        (answer, found[48..52].to_vec())
    };
    assert_eq!(in_table(254, DIRECT | TBID), (0, vec![0; 4]));
    assert_eq!(in_table(77, DIRECT | TBID), (answer::NOT_FWDED, vec![0; 4]));
    assert_eq!(in_table(77, TBID).0, 0);
    assert_eq!(in_table(77, DIRECT).0, 0);
    // An IPv6 address of this host is not a route of the main table, but its network is.
    let own = "2001:db8:2::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    assert_eq!(ask(params(10, 100, 1, &own), 0).0, answer::NOT_FWDED);
    assert_eq!(ask(params(10, 100, 1, &own), DIRECT).0, answer::NO_NEIGH);
}

#[test]
fn an_interface_without_addresses_sends_from_another_s() {
    let table = |addresses: &str| {
        let text = format!(
            r#"{{"interfaces": [{{"port": 1, "mac": "02:00:00:00:00:01", "addresses": [{addresses}]}},
                               {{"port": 2, "mac": "02:00:00:00:00:02"}}],
                 "routes": [{{"to": "192.0.2.0/24", "port": 2}}, {{"to": "2001:db8:9::/48", "port": 2}}]}}"#
        );
        Table::from_json(&text).unwrap()
    };
    let source = |table: &Table, family: u8, to: &[u8]| {
        let mut request = Request::parse(&params(family, 100, 1, to), 16 | 4).unwrap();
        (table.lookup(&mut request), request.source.to_string())
    };
    let to = "2001:db8:9::5".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let bare = table("");
    assert_eq!(source(&bare, 2, &[192, 0, 2, 1]), (0, "0.0.0.0".to_owned()));
    assert_eq!(source(&bare, 10, &to).0, answer::NO_SRC_ADDR);
    let table = table(r#""10.0.1.1/24", "2001:db8:1::1/64""#);
    assert_eq!(source(&table, 2, &[192, 0, 2, 1]), (0, "10.0.1.1".to_owned()));
    assert_eq!(source(&table, 10, &to), (0, "2001:db8:1::1".to_owned()));
}

#[test]
fn inconsistent_tables_are_refused() {
    let interface = r#"{"port": 1, "mac": "02:00:00:00:00:01"}"#;
    let interface_of = |port: u32| format!(r#"{{"interfaces": [{{"port": {port}, "mac": "02:00:00:00:00:01"}}]}}"#);
    let cases = [
        (format!(r#"{{"interfaces": [{interface}, {interface}]}}"#), "port 1 has two interfaces"),
        (interface_of(4_294_967_295), "an interface has port 4294967295, expected one below 256"),
        (r#"{"interfaces": [{"port": 1, "mac": "02:00"}]}"#.to_owned(), "`02:00` is no MAC address"),
        (
            format!(r#"{{"interfaces": [{interface}], "routes": [{{"to": "10.0.0.0/33", "port": 1}}]}}"#),
            "`10.0.0.0/33` is no prefix",
        ),
        (
            format!(r#"{{"interfaces": [{interface}], "routes": [{{"to": "10.0.0.0/8"}}]}}"#),
            "the route to 10.0.0.0/8 has no `port`",
        ),
        (
            format!(r#"{{"interfaces": [{interface}], "routes": [{{"to": "10.0.0.0/8", "port": 2}}]}}"#),
            "the route to 10.0.0.0/8 names port 2, which no interface has",
        ),
        (
            format!(r#"{{"interfaces": [{interface}], "routes": [{{"to": "10.0.0.0/8", "port": 1, "via": "::1"}}]}}"#),
            "goes `via` an address of the other family",
        ),
        (r#"{"interfaces": [], "router": 1}"#.to_owned(), "unknown field `router`"),
    ];
    for (text, expected) in cases {
        let error = Table::from_json(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_table_there_and_back() {
    let table = Table::from_json(TABLE).unwrap();
    assert_eq!(Table::from_json(&serde_json::to_string(&table).unwrap()), Ok(table));
}
