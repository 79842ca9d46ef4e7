// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of link types, for messages [pcap-linktype].

/// The only supported link type.
pub(crate) const ETHERNET: u32 = 1;

/// Link types that capture tools write; other numbers are shown in decimal.
const NAMES: &[(u32, &str)] = &[
    (0, "LINKTYPE_NULL"),
    (ETHERNET, "LINKTYPE_ETHERNET"),
    (6, "LINKTYPE_IEEE802_5"),
    (8, "LINKTYPE_SLIP"),
    (9, "LINKTYPE_PPP"),
    (10, "LINKTYPE_FDDI"),
    (12, "LINKTYPE_RAW"),
    (50, "LINKTYPE_PPP_HDLC"),
    (51, "LINKTYPE_PPP_ETHER"),
    (100, "LINKTYPE_ATM_RFC1483"),
    (101, "LINKTYPE_RAW"),
    (104, "LINKTYPE_C_HDLC"),
    (105, "LINKTYPE_IEEE802_11"),
    (107, "LINKTYPE_FRELAY"),
    (108, "LINKTYPE_LOOP"),
    (113, "LINKTYPE_LINUX_SLL"),
    (117, "LINKTYPE_PFLOG"),
    (119, "LINKTYPE_IEEE802_11_PRISM"),
    (127, "LINKTYPE_IEEE802_11_RADIOTAP"),
    (140, "LINKTYPE_MTP2"),
    (141, "LINKTYPE_MTP3"),
    (142, "LINKTYPE_SCCP"),
    (143, "LINKTYPE_DOCSIS"),
    (147, "LINKTYPE_USER0"),
    (166, "LINKTYPE_PPP_PPPD"),
    (187, "LINKTYPE_BLUETOOTH_HCI_H4"),
    (189, "LINKTYPE_USB_LINUX"),
    (192, "LINKTYPE_PPI"),
    (195, "LINKTYPE_IEEE802_15_4_WITHFCS"),
    (201, "LINKTYPE_BLUETOOTH_HCI_H4_WITH_PHDR"),
    (220, "LINKTYPE_USB_LINUX_MMAPPED"),
    (227, "LINKTYPE_CAN_SOCKETCAN"),
    (228, "LINKTYPE_IPV4"),
    (229, "LINKTYPE_IPV6"),
    (230, "LINKTYPE_IEEE802_15_4_NOFCS"),
    (239, "LINKTYPE_NFLOG"),
    (240, "LINKTYPE_NETANALYZER"),
    (247, "LINKTYPE_INFINIBAND"),
    (249, "LINKTYPE_USBPCAP"),
    (252, "LINKTYPE_WIRESHARK_UPPER_PDU"),
    (253, "LINKTYPE_NETLINK"),
    (274, "LINKTYPE_ETHERNET_MPACKET"),
    (276, "LINKTYPE_LINUX_SLL2"),
];

/// Formats a link type for messages: `LINKTYPE_LINUX_SLL (113)`.
pub(crate) fn describe(link_type: u32) -> String {
    match NAMES.iter().find(|(number, _)| *number == link_type) {
        Some((_, name)) => format!("{name} ({link_type})"),
        None => link_type.to_string(),
    }
}
