// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's routes in the kernel: a network namespace with the table's interfaces, addresses, routes and neighbours.
//!
//! Index 1 is the loopback interface in every namespace, and a port in most tables. So the interface of a port has its
//! number plus [`FIRST_INDEX`], which the rewritten program adds and subtracts around its lookups.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flowloom_vm::fib::{RouteKind, Table};

use crate::rewrite::FIRST_INDEX;
use crate::sys::namespace::Namespace;

/// The first index of the peers of the interfaces, outside of the range of lookups, to which [`FIRST_INDEX`] is added.
const FIRST_PEER: u32 = 1 << 30;

/// The limit for addresses to become usable.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The input of `ip`, one command a line.
fn commands(table: &Table) -> String {
    let mut lines = vec!["link set lo up".to_owned()];
    let name = |port: u32| format!("fl{port}");
    for interface in &table.interfaces {
        let port = interface.port;
        let (device, index, peer) = (name(port), FIRST_INDEX + port, FIRST_PEER + port);
        let (mac, mtu) = (interface.mac, interface.mtu);
        lines.push(format!(
            "link add {device} index {index} address {mac} mtu {mtu} type veth peer name fp{port} index {peer}"
        ));
        for device in [&device, &format!("fp{port}")] {
            // Without automatic addresses.
            lines.push(format!("link set {device} addrgenmode none"));
            lines.push(format!("link set {device} up"));
        }
        for prefix in &interface.addresses {
            let at_once = if prefix.address.is_ipv6() { " nodad" } else { "" };
            lines.push(format!("addr add {prefix} dev {device}{at_once}"));
        }
    }
    for neighbour in &table.neighbours {
        let device = name(neighbour.port);
        lines.push(format!("neigh add {} lladdr {} dev {device} nud permanent", neighbour.address, neighbour.mac));
    }
    for route in &table.routes {
        let kind = match route.kind {
            RouteKind::Unicast => "unicast",
            RouteKind::Local => "local",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
        };
        let mut line = format!("route add {kind} {}", route.to);
        let devices = matches!(route.kind, RouteKind::Unicast | RouteKind::Local);
        let mut say = |word: &str, what: Option<String>| {
            line.extend(what.map(|what| format!(" {word} {what}")));
        };
        say("via", route.via.filter(|_| devices).map(|via| via.to_string()));
        say("dev", route.port.filter(|_| devices).map(name));
        say("metric", route.metric.map(|metric| metric.to_string()));
        // An MTU that is not locked only counts for packets of this host.
        say("mtu lock", route.mtu.filter(|_| devices).map(|mtu| mtu.to_string()));
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

fn populate(table: &Table) -> io::Result<()> {
    let ip = || {
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        ip.spawn()
    };
    let mut ip = ip().map_err(|e| io::Error::new(e.kind(), format!("`ip` of iproute2: {e}")))?;
    if let Some(mut input) = ip.stdin.take() {
        // If it stops early it says why, below.
        drop(input.write_all(commands(table).as_bytes()));
    }
    let said = ip.wait_with_output()?;
    if !said.status.success() {
        let text = String::from_utf8_lossy(&said.stderr);
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        return Err(io::Error::other(format!("`ip` says `{}`", first.trim())));
    }
    for interface in &table.interfaces {
        for family in ["ipv4", "ipv6"] {
            let setting = format!("/proc/sys/net/{family}/conf/fl{}/forwarding", interface.port);
            // A system may have no IPv6, and an interface with a short MTU has none.
            if fs::exists(&setting)? {
                fs::write(&setting, if interface.forwarding { "1" } else { "0" })?;
            }
        }
    }
    wait_for_addresses(table)
}

/// Waits until the IPv6 addresses are usable, which the kernel decides some time after they are set.
fn wait_for_addresses(table: &Table) -> io::Result<()> {
    let addresses = table.interfaces.iter().flat_map(|interface| &interface.addresses);
    let wanted: Vec<String> = addresses
        .filter(|prefix| prefix.address.is_ipv6())
        .map(|prefix| format!("local {} ", prefix.address))
        .collect();
    let start = Instant::now();
    while !wanted.is_empty() {
        let shown = Command::new("ip").args(["-6", "route", "show", "table", "local"]).output()?;
        let routes = String::from_utf8_lossy(&shown.stdout);
        let Some(missing) = wanted.iter().find(|wanted| !routes.contains(wanted.as_str())) else { return Ok(()) };
        if start.elapsed() > SETTLED_WITHIN {
            let what = missing.trim();
            return Err(io::Error::other(format!("no route `{what}` after {} s", SETTLED_WITHIN.as_secs())));
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
    Ok(())
}

/// A network namespace with the contents of `table`.
///
/// # Errors
/// Missing privileges, `ip` is missing, or the kernel refuses something in the table.
pub(super) fn namespace(table: &Table) -> io::Result<Namespace> {
    Namespace::new(|| populate(table))
}
