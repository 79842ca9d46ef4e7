// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of programs, derived from section names and context types.

use std::fmt;

/// The kind of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ProgramKind {
    /// XDP: runs on packets as they arrive.
    #[default]
    Xdp,
    /// XDP on packets that leave through an entry of a device map.
    XdpDevmap,
    /// XDP on packets that a CPU map has sent to another CPU.
    XdpCpumap,
    /// Another kind, by its name in bpftool: Flowloom reads it and does not run it.
    Other(&'static str),
}

/// The first part of a section name, and the kind that loaders derive from it [libbpf, program types].
const SECTIONS: [(&str, &str); 52] = [
    ("socket", "socket_filter"),
    ("sk_reuseport", "sk_reuseport"),
    ("kprobe", "kprobe"),
    ("kretprobe", "kprobe"),
    ("uprobe", "kprobe"),
    ("uretprobe", "kprobe"),
    ("ksyscall", "kprobe"),
    ("kretsyscall", "kprobe"),
    ("usdt", "kprobe"),
    ("tc", "sched_cls"),
    ("tcx", "sched_cls"),
    ("netkit", "sched_cls"),
    ("classifier", "sched_cls"),
    ("action", "sched_act"),
    ("tracepoint", "tracepoint"),
    ("tp", "tracepoint"),
    ("raw_tracepoint", "raw_tracepoint"),
    ("raw_tp", "raw_tracepoint"),
    ("tp_btf", "tracing"),
    ("fentry", "tracing"),
    ("fexit", "tracing"),
    ("fsession", "tracing"),
    ("fmod_ret", "tracing"),
    ("iter", "tracing"),
    ("freplace", "ext"),
    ("lsm", "lsm"),
    ("lsm_cgroup", "lsm"),
    ("syscall", "syscall"),
    ("perf_event", "perf_event"),
    ("lwt_in", "lwt_in"),
    ("lwt_out", "lwt_out"),
    ("lwt_xmit", "lwt_xmit"),
    ("lwt_seg6local", "lwt_seg6local"),
    ("sockops", "sock_ops"),
    ("sk_skb", "sk_skb"),
    ("sk_msg", "sk_msg"),
    ("sk_lookup", "sk_lookup"),
    ("lirc_mode2", "lirc_mode2"),
    ("flow_dissector", "flow_dissector"),
    ("cgroup_skb", "cgroup_skb"),
    ("cgroup", "cgroup"),
    ("struct_ops", "struct_ops"),
    ("netfilter", "netfilter"),
    // Names that older loaders knew.
    ("cgroup_sock", "cgroup_sock"),
    ("cgroup_skb_ingress", "cgroup_skb"),
    ("cgroup_skb_egress", "cgroup_skb"),
    ("stream_parser", "sk_skb"),
    ("stream_verdict", "sk_skb"),
    ("from-container", "sched_cls"),
    ("from-netdev", "sched_cls"),
    ("to-netdev", "sched_cls"),
    ("xdp_metadata_ops", "ext"),
];

/// Context types by name, and the kind of program that gets them.
const CONTEXTS: [(&str, ProgramKind); 12] = [
    ("xdp_md", ProgramKind::Xdp),
    ("xdp_buff", ProgramKind::Xdp),
    ("__sk_buff", ProgramKind::Other("sched_cls")),
    ("pt_regs", ProgramKind::Other("kprobe")),
    ("bpf_sock_ops", ProgramKind::Other("sock_ops")),
    ("sk_msg_md", ProgramKind::Other("sk_msg")),
    ("bpf_sock_addr", ProgramKind::Other("cgroup_sock_addr")),
    ("bpf_sock", ProgramKind::Other("cgroup_sock")),
    ("sk_reuseport_md", ProgramKind::Other("sk_reuseport")),
    ("bpf_sk_lookup", ProgramKind::Other("sk_lookup")),
    ("bpf_perf_event_data", ProgramKind::Other("perf_event")),
    ("bpf_sockopt", ProgramKind::Other("cgroup_sockopt")),
];

impl ProgramKind {
    /// The kind for a section name; `None` for a name without a meaning to loaders.
    pub fn of_section(section: &str) -> Option<ProgramKind> {
        // A question mark asks loaders not to load the program by default.
        let name = section.strip_prefix('?').unwrap_or(section);
        let (head, rest) = name.split_once('/').unwrap_or((name, ""));
        // Suffixes such as `.frags`, `.s` (sleepable) and `.multi` do not change the kind.
        let head = head.split('.').next().unwrap_or(head);
        match (head, rest.split('/').next().unwrap_or(rest)) {
            ("xdp", "devmap") | ("xdp_devmap", _) => return Some(ProgramKind::XdpDevmap),
            ("xdp", "cpumap") | ("xdp_cpumap", _) => return Some(ProgramKind::XdpCpumap),
            ("xdp", _) => return Some(ProgramKind::Xdp),
            _ => {}
        }
        // The loader of the first samples accepted numbered names for these.
        let plain = head.trim_end_matches(|c: char| c.is_ascii_digit());
        let head = if matches!(plain, "socket" | "classifier" | "action" | "kprobe") { plain } else { head };
        SECTIONS.iter().find(|(known, _)| *known == head).map(|(_, kind)| ProgramKind::Other(kind))
    }

    /// The kind of program that gets a pointer to this structure.
    pub fn of_context(structure: &str) -> Option<ProgramKind> {
        CONTEXTS.iter().find(|(known, _)| *known == structure).map(|(_, kind)| *kind)
    }

    /// Whether programs of this kind have a context type of their own, so that a `struct xdp_md *` argument contradicts
    /// it. Replacements have the context of the replaced function, traces that of the traced one.
    pub fn has_own_context(self) -> bool {
        match self {
            ProgramKind::Xdp | ProgramKind::XdpDevmap | ProgramKind::XdpCpumap => false,
            ProgramKind::Other(name) => !matches!(name, "ext" | "tracing" | "struct_ops" | "lsm"),
        }
    }

    /// Whether it is XDP of any kind.
    pub fn is_xdp(self) -> bool {
        !matches!(self, ProgramKind::Other(_))
    }
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ProgramKind::Xdp => "xdp",
            ProgramKind::XdpDevmap => "xdp on a device map",
            ProgramKind::XdpCpumap => "xdp on a cpu map",
            ProgramKind::Other(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tell_the_kind() {
        use ProgramKind::{Other, Xdp, XdpCpumap, XdpDevmap};
        for (section, kind) in [
            ("xdp", Some(Xdp)),
            ("?xdp", Some(Xdp)),
            ("xdp.frags", Some(Xdp)),
            ("xdp/eth0", Some(Xdp)),
            ("xdp/devmap", Some(XdpDevmap)),
            ("xdp.frags/devmap", Some(XdpDevmap)),
            ("xdp_devmap/out", Some(XdpDevmap)),
            ("xdp/cpumap", Some(XdpCpumap)),
            ("xdp_cpumap/a", Some(XdpCpumap)),
            ("xdp_fwd", None),
            ("prog", None),
            ("x", None),
            ("t", None),
            ("tc", Some(Other("sched_cls"))),
            ("socket1", Some(Other("socket_filter"))),
            ("xdp1", None),
            ("?tc", Some(Other("sched_cls"))),
            ("tcx/ingress", Some(Other("sched_cls"))),
            ("kprobe/do_unlinkat", Some(Other("kprobe"))),
            ("uprobe.multi//bin/sh:main", Some(Other("kprobe"))),
            ("fentry.s/f", Some(Other("tracing"))),
            ("cgroup_skb/egress", Some(Other("cgroup_skb"))),
            ("cgroup/connect4", Some(Other("cgroup"))),
            ("struct_ops.s/init", Some(Other("struct_ops"))),
        ] {
            assert_eq!(ProgramKind::of_section(section), kind, "{section}");
        }
        assert_eq!(ProgramKind::of_context("__sk_buff"), Some(Other("sched_cls")));
        assert_eq!(ProgramKind::of_context("nobody"), None);
        assert!(Other("sched_cls").has_own_context() && !Other("ext").has_own_context() && !Xdp.has_own_context());
        assert!(XdpDevmap.is_xdp() && !Other("tracing").is_xdp());
    }
}
