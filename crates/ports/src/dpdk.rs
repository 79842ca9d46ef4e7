// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DPDK: ports of its drivers, virtual devices included. Needs the cargo feature `dpdk`.
//!
//! DPDK's own threads and logs stay in the process once it has started; the calling thread keeps its CPUs. A port has
//! one queue in each direction.

use std::sync::atomic::{AtomicU32, Ordering};

use flowloom_engine::{Fate, Frame, PORT_COUNT, Port};
use flowloom_exec::Interface;

use crate::device::{Departure, Device, DeviceCounters, RunBatch};
use crate::error::PortsError;
use crate::sys::dpdk::{Buffer, Line, Pool, init};

/// The packets of a batch, at most.
const BATCH: u16 = 64;
/// The room of a buffer: a page less the private area, so that packets may be as long as with AF_XDP.
const ROOM_BYTES: u16 = 4096 - 128;

/// The options of DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DpdkOptions {
    /// False: the memory is not in huge pages. Virtual devices work with it; it is slower.
    pub huge_pages: bool,
    /// The memory of the process for all devices, in MiB; counts when DPDK starts.
    pub memory_mib: u32,
    /// The entries of each ring.
    pub ring_entries: u16,
    /// Further arguments of the EAL, e.g. `--iova-mode=va`; count when DPDK starts.
    pub eal: Vec<String>,
}

impl Default for DpdkOptions {
    fn default() -> DpdkOptions {
        DpdkOptions { huge_pages: true, memory_mib: 256, ring_entries: 1024, eal: Vec::new() }
    }
}

/// Ports of DPDK. Dropping it stops them.
#[derive(Debug)]
pub struct Dpdk {
    // Stopped before the pool is freed.
    lines: Vec<(Port, String, Line)>,
    pool: Pool,
    name: String,
    counters: DeviceCounters,
    split: u64,
}

impl Dpdk {
    /// As [`Dpdk::open`], with interfaces of the kernel through `net_af_packet`.
    ///
    /// # Errors
    /// Those of [`Dpdk::open`].
    pub fn on_interfaces(interfaces: &[Interface], options: &DpdkOptions) -> Result<Dpdk, PortsError> {
        let device = |found: &Interface| format!("net_af_packet{},iface={}", found.port, found.name());
        let devices: Vec<String> = interfaces.iter().map(device).collect();
        let ports = interfaces.iter().map(|found| Port(found.port));
        let devices: Vec<(Port, &str)> = ports.zip(devices.iter().map(String::as_str)).collect();
        Dpdk::open(&devices, options)
    }

    /// Starts DPDK, if it does not run yet, and the drivers of the devices: each as for `--vdev`, e.g.
    /// `net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap`, or a PCI address.
    ///
    /// # Errors
    /// There are no huge pages, no driver for a device, or a privilege is missing.
    pub fn open(devices: &[(Port, &str)], options: &DpdkOptions) -> Result<Dpdk, PortsError> {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let names: Vec<&str> = devices.iter().map(|(_, device)| device.split(',').next().unwrap_or_default()).collect();
        let name = format!("dpdk {}", names.join(","));
        let failed =
            |what: String, remedy: &str| PortsError::Library { device: name.clone(), what, remedy: remedy.to_owned() };
        for (at, (port, device)) in devices.iter().enumerate() {
            if port.0 >= PORT_COUNT {
                return Err(PortsError::PortNumber { port: *port, device: (*device).to_owned() });
            }
            if let Some(first) = devices[..at].iter().position(|(other, _)| other == port) {
                let (first, second) = (names[first].to_owned(), names[at].to_owned());
                return Err(PortsError::BoundTwice { port: *port, first, second });
            }
        }
        if options.huge_pages && free_huge_pages() == 0 {
            let remedy = "reserve some, e.g. `echo 512 > /proc/sys/vm/nr_hugepages`, or run with --no-huge-pages, which \
                          virtual devices do not need";
            return Err(failed("no huge page is free".to_owned(), remedy));
        }
        init(&arguments(options)).map_err(|error| {
            failed(format!("DPDK does not start: {error}"), "see its messages above; most drivers need root")
        })?;
        let entries = options.ring_entries;
        let count = (devices.len() as u32).max(1) * 2 * u32::from(entries) + 2 * u32::from(BATCH);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let pool = Pool::new(&format!("flowloom{number}"), count, ROOM_BYTES)
            .map_err(|error| failed(format!("no memory for {count} packets: {error}"), "give DPDK more memory"))?;
        let mut lines = Vec::new();
        for (port, device) in devices {
            let line = Line::start(device, entries, &pool).map_err(|error| {
                let remedy = "check name and arguments of the device, that its driver is installed, and for PCI \
                              devices that it is bound to vfio-pci (`dpdk-devbind.py --status`)";
                failed(format!("device `{device}` does not start: {error}"), remedy)
            })?;
            lines.push((*port, (*device).to_owned(), line));
        }
        Ok(Dpdk { lines, pool, name, counters: DeviceCounters::default(), split: 0 })
    }

    /// The buffers that drivers or rings hold at the moment.
    pub fn buffers_used(&self) -> u32 {
        self.pool.used()
    }
}

/// The number of free huge pages of the default size.
fn free_huge_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

/// The arguments of the EAL: no files, no devices but those that are asked for, and the CPUs of the calling thread.
fn arguments(options: &DpdkOptions) -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    let mut arguments = vec![
        "flowloom".to_owned(),
        "--no-telemetry".to_owned(),
        // An address that no device has: by default every device with a driver is taken.
        "--allow=ffff:ff:1f.7".to_owned(),
        "--log-level=lib.*:error".to_owned(),
        format!("--lcores=0@({cpus})"),
        "-m".to_owned(),
        options.memory_mib.to_string(),
    ];
    let memory: &[&str] = if options.huge_pages { &["--in-memory"] } else { &["--no-huge", "--no-shconf"] };
    arguments.extend(memory.iter().map(|argument| (*argument).to_owned()));
    arguments.extend(options.eal.iter().cloned());
    arguments
}

/// Sends buffers through a line, and counts.
fn send(line: &Line, buffers: Vec<Buffer<'_>>, bytes: u64, counters: &mut DeviceCounters) {
    let count = buffers.len();
    let sent = line.send(buffers);
    counters.sent += sent as u64;
    counters.sent_bytes += if sent == count { bytes } else { bytes * sent as u64 / count.max(1) as u64 };
    counters.tx_full += (count - sent) as u64;
}

impl Device for Dpdk {
    fn name(&self) -> &str {
        &self.name
    }

    fn ports(&self) -> Vec<(Port, String)> {
        self.lines.iter().map(|(port, device, _)| (*port, device.clone())).collect()
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn receive(&mut self, now_ns: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let mut count = 0;
        for (port, _, line) in &self.lines {
            let mut buffers = line.receive(&self.pool, BATCH, &mut self.split);
            if buffers.is_empty() {
                continue;
            }
            let mut frames: Vec<Frame<'_>> = buffers
                .iter_mut()
                .map(|buffer| {
                    let (bytes, start, end) = buffer.parts_mut();
                    Frame::new(bytes, start, end, *port, now_ns)
                })
                .collect();
            let ran = run(&mut frames);
            let fates: Vec<(Fate, usize, usize)> =
                frames.iter().map(|frame| (frame.fate, frame.start(), frame.end())).collect();
            drop(frames);
            count += buffers.len();
            let mut sent: Vec<(Vec<Buffer<'_>>, u64)> = self.lines.iter().map(|_| (Vec::new(), 0)).collect();
            for (mut buffer, (fate, start, end)) in buffers.into_iter().zip(fates) {
                let Fate::Redirect(port) = fate else { continue };
                match self.lines.iter().position(|(of, ..)| *of == port) {
                    Some(egress) if buffer.set_bounds(start, end) => {
                        sent[egress].0.push(buffer);
                        sent[egress].1 += (end - start) as u64;
                    }
                    _ => self.counters.tx_refused += 1,
                }
            }
            for ((_, _, line), (buffers, bytes)) in self.lines.iter().zip(sent) {
                send(line, buffers, bytes, &mut self.counters);
            }
            ran?;
        }
        Ok(count)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        let Departure { port, bytes, .. } = departure;
        let Some((_, _, line)) = self.lines.iter().find(|(of, ..)| *of == port) else {
            self.counters.tx_refused += 1;
            return Ok(());
        };
        let Some(mut buffer) = self.pool.allocate(bytes.len()) else {
            self.counters.tx_full += 1;
            return Ok(());
        };
        let (place, start, end) = buffer.parts_mut();
        place[start..end].copy_from_slice(bytes);
        send(line, vec![buffer], bytes.len() as u64, &mut self.counters);
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        let (missed, refused) = self.lines.iter().fold((0, 0), |(missed, refused), (_, _, line)| {
            let (rx, tx) = line.counters();
            (missed + rx, refused + tx)
        });
        let tx_refused = self.counters.tx_refused + refused;
        DeviceCounters { rx_missed: missed + self.split, tx_refused, ..self.counters }
    }
}
