// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet rates of forwarding between two veth pairs, by device, side by side.
//!
//! ```text
//!  sender thread ──► far1 ═ near1 ──► loop: swap addresses ──► near2 ═ far2, which drops
//! ```
//!
//! `cargo run --release -p flowloom-ports --example forward [SECONDS [ROUNDS [BYTES]]]`, as root. Each round runs every
//! device once; the table shows the rate at which packets arrive at far2 (median, least, greatest), the median CPU
//! time of the loop for a packet, and the packets lost before the loop and after it. The sender is unthrottled: what it
//! sends beyond the rate of the loop is lost; its CPU also runs the XDP program and copies packets to the sockets.
#![allow(unsafe_code, reason = "namespaces and CPU affinity")]
#![allow(clippy::print_stdout, reason = "the table")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flowloom_engine::{EngineError, Fate, Frame, InPlace, Output, Port, Ports};
use flowloom_exec::{Interface, Mode};
use flowloom_ports::{
    AfXdp, AfXdpOptions, CaptureSink, CaptureSource, Device, Hooks, Host, LoopOptions, PortsError, Raw, RawOptions,
    Statistics, ToDevice, run_loop,
};
use flowloom_trace::CapturedPacket;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Swaps the Ethernet addresses, and redirects port 1 to port 2.
struct Cross;

impl InPlace for Cross {
    fn name(&self) -> &str {
        "cross"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        for frame in frames {
            if let Some((first, second)) = frame.bytes_mut().get_mut(..12).map(|addresses| addresses.split_at_mut(6)) {
                first.swap_with_slice(second);
            }
            frame.fate = Fate::Redirect(Port(2));
        }
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn ip(words: &str) -> Result<(), Failure> {
    let said = Command::new("ip").args(words.split_whitespace()).output()?;
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.success() { Ok(()) } else { Err(format!("ip {words}: {error}").into()) }
}

/// Moves the calling thread to a CPU, if it may run there.
fn pin(cpu: usize) {
    // SAFETY: a mask consists of bits only, and the number is below its size; 0 is the calling thread.
    unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut mask);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const mask);
    }
}

/// Moves the calling thread to a new network namespace.
fn leave() -> Result<File, Failure> {
    // SAFETY: takes no addresses; only this thread moves.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    Ok(File::open("/proc/thread-self/ns/net")?)
}

fn enter(namespace: &File) -> Result<(), Failure> {
    // SAFETY: takes no addresses; only this thread moves.
    Ok(checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?)
}

/// Sends until `stop` is set; returns the number of packets.
fn send(namespace: &File, bytes: usize, stop: &AtomicBool) -> Result<u64, Failure> {
    enter(namespace)?;
    pin(0);
    let mut sender = ToDevice::open(&Interface::find(0, "far1")?)?;
    let mut packet = vec![0; bytes];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..64 {
            sender.deliver(Port(0), &packet)?;
        }
    }
    Ok(sender.counters().sent)
}

/// The packets received by `name` in the calling thread's namespace.
fn received(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// The interfaces as a device.
type Open = fn(&[Interface]) -> Result<Box<dyn Device>, PortsError>;

/// The devices of the comparison.
const DEVICES: &[(&str, Open)] = &[
    ("af_xdp native", |near| af_xdp(near, Mode::Native)),
    ("af_xdp skb", |near| af_xdp(near, Mode::Skb)),
    ("raw", |near| Ok(Box::new(Raw::open(near, RawOptions::default())?))),
    #[cfg(feature = "dpdk")]
    ("dpdk raw", |near| {
        let options = flowloom_ports::DpdkOptions { huge_pages: false, ..flowloom_ports::DpdkOptions::default() };
        Ok(Box::new(flowloom_ports::Dpdk::on_interfaces(near, &options)?))
    }),
];

fn af_xdp(near: &[Interface], mode: Mode) -> Result<Box<dyn Device>, PortsError> {
    Ok(Box::new(AfXdp::open(near, &AfXdpOptions { mode: Some(mode), ..AfXdpOptions::default() })?))
}

/// The CPU time of the calling thread, in user space and in the kernel.
fn cpu_time() -> Duration {
    // SAFETY: plain data, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the usage is live and mutable.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The counters and the CPU time of the loop, the packets that arrived at far2 and those of the sender.
struct Round {
    found: Statistics,
    cpu: Duration,
    arrived: u64,
    sent: u64,
}

fn round(here: &File, there: &File, open: Open, bytes: usize, time: Duration) -> Result<Round, Failure> {
    let (stop, stop_sender, arrived) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(Statistics, Duration), Failure> {
            enter(here)?;
            pin(1);
            let near = [Interface::find(1, "near1")?, Interface::find(2, "near2")?];
            let mut devices = [open(&near)?];
            let options = LoopOptions::default();
            let before = cpu_time();
            let found = run_loop(&mut devices, &mut Cross, None, &options, &stop, Hooks::default())?;
            Ok((found, cpu_time() - before))
        });
        std::thread::sleep(Duration::from_millis(100));
        let sender = scope.spawn(|| send(there, bytes, &stop_sender));
        let counter = scope.spawn(|| -> Result<(), Failure> {
            enter(there)?;
            let before = received("far2");
            std::thread::sleep(time);
            stop_sender.store(true, Ordering::Relaxed);
            // What is on the way arrives.
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
            arrived.store(received("far2") - before, Ordering::Relaxed);
            Ok(())
        });
        let failed = |_| Failure::from("a thread failed");
        counter.join().map_err(failed)??;
        let sent = sender.join().map_err(failed)??;
        let (found, cpu) = receiver.join().map_err(failed)??;
        Ok(Round { found, cpu, arrived: arrived.load(Ordering::Relaxed), sent })
    })
}

/// The rate of the loop alone, from memory to a sink that only counts.
fn memory(bytes: usize, time: Duration) -> Result<f64, Failure> {
    let captured = CapturedPacket { bytes: vec![7; bytes], port: 1, ..CapturedPacket::default() };
    let source = CaptureSource::read(&mut (0..1024).map(|_| Ok(captured.clone())), u64::MAX)?;
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(source), Box::new(CaptureSink::default())];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        let found = run_loop(&mut devices, &mut Cross, None, &LoopOptions::default(), &stop, Hooks::default())?;
        Ok(found.packets_per_second())
    })
}

fn command_line(at: usize, default: u64) -> Result<u64, Failure> {
    Ok(std::env::args().nth(at).map_or(Ok(default), |text| text.parse())?)
}

fn said(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

fn main() -> Result<(), Failure> {
    let (seconds, rounds, bytes) = (command_line(1, 2)?, command_line(2, 5)?, command_line(3, 64)?);
    let time = Duration::from_secs(seconds);
    let bytes = (bytes as usize).clamp(14, 1514);
    let there = std::thread::spawn(leave).join().map_err(|_| "a thread failed")??;
    let path = format!("/proc/{}/fd/{}", std::process::id(), there.as_raw_fd());
    let here = leave()?;
    for pair in [1, 2] {
        ip(&format!("link add near{pair} type veth peer name far{pair} netns {path}"))?;
        ip(&format!("link set near{pair} up"))?;
    }
    std::thread::scope(|scope| {
        let turned_on = scope.spawn(|| {
            enter(&there)?;
            [1, 2].iter().try_for_each(|pair| ip(&format!("link set far{pair} up")))
        });
        turned_on.join().map_err(|_| Failure::from("a thread failed"))?
    })?;
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?");
    println!("commit {}, {}", said("git", &["rev-parse", "--short", "HEAD"]), cpu.trim_start_matches([' ', '\t', ':']));
    println!("{bytes} bytes, {rounds} rounds of {seconds} s; rates in packets a second");
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); DEVICES.len()];
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); DEVICES.len()];
    let mut lost = vec![(0, 0, 0); DEVICES.len()];
    // The first round warms up.
    for number in 0..=rounds {
        for (at, (_, open)) in DEVICES.iter().enumerate() {
            let Round { found, cpu, arrived, sent } = round(&here, &there, *open, bytes, time)?;
            if number > 0 {
                rates[at].push(arrived as f64 / time.as_secs_f64());
                costs[at].push(cpu.as_nanos() as f64 / found.packets.max(1) as f64);
                lost[at].0 += sent;
                lost[at].1 += sent - found.packets.min(sent);
                lost[at].2 += found.packets - arrived.min(found.packets);
            }
        }
    }
    println!("device          median    least  greatest  CPU ns/packet       sent  lost before  lost after");
    for ((((name, _), rates), costs), (sent, before, after)) in DEVICES.iter().zip(&mut rates).zip(&mut costs).zip(lost)
    {
        let [median, least, greatest] = spread(rates);
        let [cost, ..] = spread(costs);
        println!(
            "{name:<14} {median:>7.0} {least:>8.0} {greatest:>9.0} {cost:>14.0} {sent:>10} {before:>12} {after:>11}"
        );
    }
    let mut rates = (0..rounds).map(|_| memory(bytes, time)).collect::<Result<Vec<f64>, _>>()?;
    let [median, least, greatest] = spread(&mut rates);
    println!("the loop alone, from memory: {median:.0}, {least:.0} to {greatest:.0}");
    Ok(())
}

/// Median, least and greatest.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values.len() / 2, 0, values.len().saturating_sub(1)].map(|at| values.get(at).copied().unwrap_or(0.0))
}
