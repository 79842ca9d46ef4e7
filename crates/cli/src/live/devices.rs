// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a run in user space, and the receiver of passed packets.

use flowloom_engine::Port;
use flowloom_exec::{Interface, LiveError, Mode};
use flowloom_ports::{AfXdp, AfXdpOptions, BusyPoll, Device, Host, PortsError, Raw, RawOptions, Stack, Tap, ToDevice};

use crate::args::{DeviceKind, LiveArgs, PassTo};
use crate::failure::{Failure, with_causes};
use crate::output::print_note;

/// The packets that a call of busy polling processes, at most.
const BUSY_POLL_BUDGET: u32 = 64;

/// Opened devices. Dropping them returns the interfaces to the network stack.
pub(super) struct Devices {
    // Closed first: packets reach the network stack again.
    pub(super) devices: Vec<Box<dyn Device>>,
    pub(super) host: Option<Box<dyn Host>>,
    /// The interfaces of the network stack, with the mode in which their packets are received.
    pub(super) interfaces: Vec<Interface>,
    /// The modes of AF_XDP's programs on them.
    modes: Vec<Mode>,
    pub(super) received: Mode,
    /// Details of the mode for people; may be empty.
    pub(super) details: String,
    /// The reason why the default receiver of passed packets is missing.
    pub(super) no_host: Option<String>,
}

/// The failure of a device. A name that does not exist is wrong input, as in the other modes.
pub(super) fn failure(error: &PortsError) -> Failure {
    match error {
        PortsError::Interface(LiveError::NoInterface { .. }) => Failure::Input(with_causes(error)),
        error if error.is_environment() => Failure::Environment(with_causes(error)),
        error => Failure::Input(with_causes(error)),
    }
}

impl Devices {
    /// Opens the devices of the mode on the interfaces, and the receiver of passed packets.
    ///
    /// # Errors
    /// An interface is missing or occupied; a privilege, a feature or memory is missing.
    pub(super) fn open(kind: DeviceKind, bindings: &[(u32, &str)], live: &LiveArgs) -> Result<Devices, Failure> {
        let find = |port, name: &str| Interface::find(port, name).map_err(|e| failure(&e.into()));
        let mut interfaces = Vec::new();
        if kind.has_stack() {
            for (port, name) in bindings {
                interfaces.push(find(*port, name)?);
            }
        }
        let to = match &live.pass_to {
            Some(PassTo::Device(name)) => {
                let found = find(0, name)?;
                if interfaces.iter().any(|interface| interface.index() == found.index()) {
                    return Err(Failure::Input(format!(
                        "--pass-to {name}: the function runs on `{name}`; name another interface, or `stack`"
                    )));
                }
                Some(found)
            }
            _ => None,
        };
        let mut opened = match kind {
            DeviceKind::AfXdp => af_xdp(interfaces, live),
            DeviceKind::Raw => raw(interfaces),
            DeviceKind::Tap => tap(bindings),
            DeviceKind::Dpdk => dpdk(bindings, live),
        }?;
        match (&live.pass_to, to) {
            (_, Some(to)) => opened.host = Some(Box::new(ToDevice::open(&to).map_err(|e| failure(&e))?)),
            (None, None) if !kind.has_stack() => {}
            (given, None) => match Stack::open(&opened.interfaces, &opened.modes) {
                Ok(stack) => opened.host = Some(Box::new(stack)),
                Err(error @ PortsError::Unsupported { .. }) if given.is_none() => {
                    opened.no_host = Some(with_causes(&error));
                }
                Err(error) => return Err(failure(&error)),
            },
        }
        Ok(opened)
    }

    fn of(device: impl Device + 'static, interfaces: Vec<Interface>, received: Mode) -> Devices {
        let devices: Vec<Box<dyn Device>> = vec![Box::new(device)];
        let (modes, details) = (Vec::new(), String::new());
        Devices { devices, host: None, interfaces, modes, received, details, no_host: None }
    }
}

fn af_xdp(interfaces: Vec<Interface>, live: &LiveArgs) -> Result<Devices, Failure> {
    let busy_poll = live.busy_poll.map(|timeout| BusyPoll {
        timeout_us: u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX),
        budget: BUSY_POLL_BUDGET,
    });
    let options = AfXdpOptions { busy_poll, ..AfXdpOptions::default() };
    let device = AfXdp::open(&interfaces, &options).map_err(|e| failure(&e))?;
    let modes = device.modes();
    let received = if modes.contains(&Mode::Skb) { Mode::Skb } else { Mode::Native };
    let transfer = if device.is_zero_copy() { "without copying" } else { "by copy" };
    let names: Vec<String> = modes.iter().map(Mode::to_string).collect();
    let details = format!(" ({}, {transfer})", names.join(" and "));
    Ok(Devices { modes, details, ..Devices::of(device, interfaces, received) })
}

fn raw(interfaces: Vec<Interface>) -> Result<Devices, Failure> {
    for interface in &interfaces {
        if let Err(LiveError::Occupied(other)) = interface.require_free() {
            let program = other.program.as_deref().unwrap_or("?");
            print_note(&format!(
                "interface `{}` runs the XDP program `{program}` (id {}) of another process, which sees packets first: the \
                 function receives only those that it passes",
                interface.name(),
                other.id
            ));
        }
    }
    let device = Raw::open(&interfaces, RawOptions::default()).map_err(|e| failure(&e))?;
    Ok(Devices::of(device, interfaces, Mode::Skb))
}

fn tap(bindings: &[(u32, &str)]) -> Result<Devices, Failure> {
    let ports: Vec<(Port, &str)> = bindings.iter().map(|(port, name)| (Port(*port), *name)).collect();
    let device = Tap::open(&ports).map_err(|e| failure(&e))?;
    Ok(Devices::of(device, Vec::new(), Mode::Skb))
}

#[cfg(feature = "dpdk")]
fn dpdk(bindings: &[(u32, &str)], live: &LiveArgs) -> Result<Devices, Failure> {
    let ports: Vec<(Port, &str)> = bindings.iter().map(|(port, name)| (Port(*port), *name)).collect();
    let options =
        flowloom_ports::DpdkOptions { huge_pages: !live.no_huge_pages, ..flowloom_ports::DpdkOptions::default() };
    let device = flowloom_ports::Dpdk::open(&ports, &options).map_err(|e| failure(&e))?;
    Ok(Devices::of(device, Vec::new(), Mode::Native))
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &[(u32, &str)], _: &LiveArgs) -> Result<Devices, Failure> {
    Err(Failure::Environment(
        "--mode dpdk: this `flowloom` was built without DPDK; install its headers and libraries (`libdpdk-dev`) and \
         build with `cargo build --release -p flowloom-cli --features dpdk`"
            .to_owned(),
    ))
}
