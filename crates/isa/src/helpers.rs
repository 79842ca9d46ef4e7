//! Helpers by number and name, shared by assembler, disassembler, program check and engines.

use crate::insn::helper;

/// A helper of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperInfo {
    /// Its number in the kernel's `bpf.h`.
    pub number: i32,
    /// Its name without `bpf_`.
    pub name: &'static str,
    /// The number of argument registers that it reads.
    pub args: usize,
}

const fn info(number: i32, name: &'static str, args: usize) -> HelperInfo {
    HelperInfo { number, name, args }
}

/// The first number of Flowloom's own helpers, which no kernel has.
pub const FIRST_PRIVATE: i32 = 0x4000_0000;
/// Flag of `fl_evict`: the field is signed (two's complement).
pub const EVICT_SIGNED: u64 = 1 << 8;
/// Flag of `fl_evict`: evict the entry with the largest value instead of the smallest.
pub const EVICT_HIGHEST: u64 = 1 << 9;

/// The helpers that Flowloom runs, ascending by number, with the semantics of the kernel's. What only makes sense on a CPU is
/// defined as follows:
///
/// - `get_smp_processor_id` gives the CPU of the run record, `get_numa_node_id` 0.
/// - `ktime_get_boot_ns`, `ktime_get_coarse_ns` and `ktime_get_tai_ns` give the packet's arrival time as `ktime_get_ns`
///   does; `jiffies64` counts it in units of 4 ms.
/// - `probe_read_kernel` and `probe_read_kernel_str` read what the program has addresses of; of all else, kernel addresses
///   fail with -EFAULT, and others (those near NULL, those of processes) with -ERANGE.
/// - `trace_printk` and `trace_vprintk` return the length of the text, which is discarded.
///
/// Flowloom's own helpers:
///
/// - `fl_clone(ctx, port)`: sends a copy of the packet in its current state through the port.
/// - `fl_emit(ctx, port, bytes, len)`: sends a packet of these bytes through the port.
/// - `fl_evict(map, offset, size | flags)`: evicts the entry of a hash table with the smallest value in the field of
///   `size` bytes at `offset`, or with [`EVICT_HIGHEST`] the largest; of several the one with the smallest key. Returns 0, or
///   -ENOENT if the table is empty.
pub const HELPERS: [HelperInfo; 45] = [
    info(helper::MAP_LOOKUP_ELEM, "map_lookup_elem", 2),
    info(helper::MAP_UPDATE_ELEM, "map_update_elem", 4),
    info(helper::MAP_DELETE_ELEM, "map_delete_elem", 2),
    info(helper::KTIME_GET_NS, "ktime_get_ns", 0),
    info(helper::TRACE_PRINTK, "trace_printk", 2),
    info(helper::GET_PRANDOM_U32, "get_prandom_u32", 0),
    info(helper::GET_SMP_PROCESSOR_ID, "get_smp_processor_id", 0),
    info(helper::TAIL_CALL, "tail_call", 3),
    info(helper::REDIRECT, "redirect", 2),
    info(helper::PERF_EVENT_OUTPUT, "perf_event_output", 5),
    info(helper::CSUM_DIFF, "csum_diff", 5),
    info(helper::GET_NUMA_NODE_ID, "get_numa_node_id", 0),
    info(helper::XDP_ADJUST_HEAD, "xdp_adjust_head", 2),
    info(helper::REDIRECT_MAP, "redirect_map", 3),
    info(helper::XDP_ADJUST_META, "xdp_adjust_meta", 2),
    info(helper::XDP_ADJUST_TAIL, "xdp_adjust_tail", 2),
    info(helper::FIB_LOOKUP, "fib_lookup", 4),
    info(helper::SPIN_LOCK, "spin_lock", 1),
    info(helper::SPIN_UNLOCK, "spin_unlock", 1),
    info(helper::STRTOL, "strtol", 4),
    info(helper::STRTOUL, "strtoul", 4),
    info(helper::PROBE_READ_KERNEL, "probe_read_kernel", 3),
    info(helper::PROBE_READ_KERNEL_STR, "probe_read_kernel_str", 3),
    info(helper::JIFFIES64, "jiffies64", 0),
    info(helper::KTIME_GET_BOOT_NS, "ktime_get_boot_ns", 0),
    info(helper::RINGBUF_OUTPUT, "ringbuf_output", 4),
    info(helper::RINGBUF_RESERVE, "ringbuf_reserve", 3),
    info(helper::RINGBUF_SUBMIT, "ringbuf_submit", 2),
    info(helper::RINGBUF_DISCARD, "ringbuf_discard", 2),
    info(helper::RINGBUF_QUERY, "ringbuf_query", 2),
    info(helper::KTIME_GET_COARSE_NS, "ktime_get_coarse_ns", 0),
    info(helper::CHECK_MTU, "check_mtu", 5),
    info(helper::FOR_EACH_MAP_ELEM, "for_each_map_elem", 4),
    info(helper::SNPRINTF, "snprintf", 5),
    info(helper::TRACE_VPRINTK, "trace_vprintk", 4),
    info(helper::LOOP, "loop", 4),
    info(helper::STRNCMP, "strncmp", 3),
    info(helper::XDP_GET_BUFF_LEN, "xdp_get_buff_len", 1),
    info(helper::XDP_LOAD_BYTES, "xdp_load_bytes", 4),
    info(helper::XDP_STORE_BYTES, "xdp_store_bytes", 4),
    info(helper::MAP_LOOKUP_PERCPU_ELEM, "map_lookup_percpu_elem", 3),
    info(helper::KTIME_GET_TAI_NS, "ktime_get_tai_ns", 0),
    info(helper::FL_CLONE, "fl_clone", 2),
    info(helper::FL_EMIT, "fl_emit", 4),
    info(helper::FL_EVICT, "fl_evict", 3),
];

/// Whether the helper is one of Flowloom's own, which no kernel has.
pub fn is_private(number: i32) -> bool {
    number >= FIRST_PRIVATE
}

/// The kernel's helpers by number, without `bpf_` [Linux uapi/bpf.h]; the list is complete, since kernel functions
/// replace new helpers.
const NAMES: [&str; 212] = [
    "unspec",
    "map_lookup_elem",
    "map_update_elem",
    "map_delete_elem",
    "probe_read",
    "ktime_get_ns",
    "trace_printk",
    "get_prandom_u32",
    "get_smp_processor_id",
    "skb_store_bytes",
    "l3_csum_replace",
    "l4_csum_replace",
    "tail_call",
    "clone_redirect",
    "get_current_pid_tgid",
    "get_current_uid_gid",
    "get_current_comm",
    "get_cgroup_classid",
    "skb_vlan_push",
    "skb_vlan_pop",
    "skb_get_tunnel_key",
    "skb_set_tunnel_key",
    "perf_event_read",
    "redirect",
    "get_route_realm",
    "perf_event_output",
    "skb_load_bytes",
    "get_stackid",
    "csum_diff",
    "skb_get_tunnel_opt",
    "skb_set_tunnel_opt",
    "skb_change_proto",
    "skb_change_type",
    "skb_under_cgroup",
    "get_hash_recalc",
    "get_current_task",
    "probe_write_user",
    "current_task_under_cgroup",
    "skb_change_tail",
    "skb_pull_data",
    "csum_update",
    "set_hash_invalid",
    "get_numa_node_id",
    "skb_change_head",
    "xdp_adjust_head",
    "probe_read_str",
    "get_socket_cookie",
    "get_socket_uid",
    "set_hash",
    "setsockopt",
    "skb_adjust_room",
    "redirect_map",
    "sk_redirect_map",
    "sock_map_update",
    "xdp_adjust_meta",
    "perf_event_read_value",
    "perf_prog_read_value",
    "getsockopt",
    "override_return",
    "sock_ops_cb_flags_set",
    "msg_redirect_map",
    "msg_apply_bytes",
    "msg_cork_bytes",
    "msg_pull_data",
    "bind",
    "xdp_adjust_tail",
    "skb_get_xfrm_state",
    "get_stack",
    "skb_load_bytes_relative",
    "fib_lookup",
    "sock_hash_update",
    "msg_redirect_hash",
    "sk_redirect_hash",
    "lwt_push_encap",
    "lwt_seg6_store_bytes",
    "lwt_seg6_adjust_srh",
    "lwt_seg6_action",
    "rc_repeat",
    "rc_keydown",
    "skb_cgroup_id",
    "get_current_cgroup_id",
    "get_local_storage",
    "sk_select_reuseport",
    "skb_ancestor_cgroup_id",
    "sk_lookup_tcp",
    "sk_lookup_udp",
    "sk_release",
    "map_push_elem",
    "map_pop_elem",
    "map_peek_elem",
    "msg_push_data",
    "msg_pop_data",
    "rc_pointer_rel",
    "spin_lock",
    "spin_unlock",
    "sk_fullsock",
    "tcp_sock",
    "skb_ecn_set_ce",
    "get_listener_sock",
    "skc_lookup_tcp",
    "tcp_check_syncookie",
    "sysctl_get_name",
    "sysctl_get_current_value",
    "sysctl_get_new_value",
    "sysctl_set_new_value",
    "strtol",
    "strtoul",
    "sk_storage_get",
    "sk_storage_delete",
    "send_signal",
    "tcp_gen_syncookie",
    "skb_output",
    "probe_read_user",
    "probe_read_kernel",
    "probe_read_user_str",
    "probe_read_kernel_str",
    "tcp_send_ack",
    "send_signal_thread",
    "jiffies64",
    "read_branch_records",
    "get_ns_current_pid_tgid",
    "xdp_output",
    "get_netns_cookie",
    "get_current_ancestor_cgroup_id",
    "sk_assign",
    "ktime_get_boot_ns",
    "seq_printf",
    "seq_write",
    "sk_cgroup_id",
    "sk_ancestor_cgroup_id",
    "ringbuf_output",
    "ringbuf_reserve",
    "ringbuf_submit",
    "ringbuf_discard",
    "ringbuf_query",
    "csum_level",
    "skc_to_tcp6_sock",
    "skc_to_tcp_sock",
    "skc_to_tcp_timewait_sock",
    "skc_to_tcp_request_sock",
    "skc_to_udp6_sock",
    "get_task_stack",
    "load_hdr_opt",
    "store_hdr_opt",
    "reserve_hdr_opt",
    "inode_storage_get",
    "inode_storage_delete",
    "d_path",
    "copy_from_user",
    "snprintf_btf",
    "seq_printf_btf",
    "skb_cgroup_classid",
    "redirect_neigh",
    "per_cpu_ptr",
    "this_cpu_ptr",
    "redirect_peer",
    "task_storage_get",
    "task_storage_delete",
    "get_current_task_btf",
    "bprm_opts_set",
    "ktime_get_coarse_ns",
    "ima_inode_hash",
    "sock_from_file",
    "check_mtu",
    "for_each_map_elem",
    "snprintf",
    "sys_bpf",
    "btf_find_by_name_kind",
    "sys_close",
    "timer_init",
    "timer_set_callback",
    "timer_start",
    "timer_cancel",
    "get_func_ip",
    "get_attach_cookie",
    "task_pt_regs",
    "get_branch_snapshot",
    "trace_vprintk",
    "skc_to_unix_sock",
    "kallsyms_lookup_name",
    "find_vma",
    "loop",
    "strncmp",
    "get_func_arg",
    "get_func_ret",
    "get_func_arg_cnt",
    "get_retval",
    "set_retval",
    "xdp_get_buff_len",
    "xdp_load_bytes",
    "xdp_store_bytes",
    "copy_from_user_task",
    "skb_set_tstamp",
    "ima_file_hash",
    "kptr_xchg",
    "map_lookup_percpu_elem",
    "skc_to_mptcp_sock",
    "dynptr_from_mem",
    "ringbuf_reserve_dynptr",
    "ringbuf_submit_dynptr",
    "ringbuf_discard_dynptr",
    "dynptr_read",
    "dynptr_write",
    "dynptr_data",
    "tcp_raw_gen_syncookie_ipv4",
    "tcp_raw_gen_syncookie_ipv6",
    "tcp_raw_check_syncookie_ipv4",
    "tcp_raw_check_syncookie_ipv6",
    "ktime_get_tai_ns",
    "user_ringbuf_drain",
    "cgrp_storage_get",
    "cgrp_storage_delete",
];

/// The helper with this number, if Flowloom supports it.
pub fn by_number(number: i32) -> Option<&'static HelperInfo> {
    HELPERS.binary_search_by_key(&number, |h| h.number).ok().map(|at| &HELPERS[at])
}

/// The name of a helper, supported or not.
pub fn name_of(number: i32) -> Option<&'static str> {
    let foreign = || NAMES.get(usize::try_from(number).ok()?).copied().filter(|_| number != 0);
    by_number(number).map(|h| h.name).or_else(foreign)
}

/// The number of the helper with this name, with or without the prefix `bpf_`.
pub fn number_of(name: &str) -> Option<i32> {
    let name = name.strip_prefix("bpf_").unwrap_or(name);
    let ours = HELPERS.iter().find(|h| h.name == name).map(|h| h.number);
    ours.or_else(|| NAMES.iter().skip(1).position(|known| *known == name).map(|at| at as i32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        for (number, name) in (0..).zip(NAMES).skip(1) {
            assert_eq!((number_of(name), name_of(number)), (Some(number), Some(name)));
        }
        for info in HELPERS {
            assert_eq!(number_of(&format!("bpf_{}", info.name)), Some(info.number));
            assert!(is_private(info.number) || NAMES[info.number as usize] == info.name);
        }
        assert!(HELPERS.is_sorted_by_key(|info| info.number), "looked up by halves");
        assert_eq!((name_of(0), name_of(-1), name_of(212), number_of("unspec")), (None, None, None, None));
    }
}
