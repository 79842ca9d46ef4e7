flowloom: `functions/ebpf/simple_firewall/simple_firewall.bpf.c` has no program `nope`; it has `simple_firewall`
