// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts, outputs, context and helpers.

use flowloom_engine::{Ports, Verdict};

use flowloom_wire::{Header, Question};

use super::*;

fn outcome(text: &str) -> Outcome {
    interp(text).send(b"0123456789abcdef").unwrap()
}

#[test]
fn verdicts_and_outputs() {
    let packet = b"0123456789abcdef".to_vec();
    assert_eq!(outcome("r0 = 0\nexit"), Outcome::without_output(Verdict::Aborted));
    assert_eq!(outcome("r0 = 1\nexit"), Outcome::without_output(Verdict::Drop));
    assert_eq!(outcome("r0 = 2\nexit"), Outcome::sent(Verdict::Pass, Port(7), packet.clone()));
    assert_eq!(outcome("r0 = 3\nexit"), Outcome::sent(Verdict::Tx, Port(7), packet.clone()));
    assert_eq!(outcome("r0 = 5\nexit"), Outcome::without_output(Verdict::Aborted));
    // Only the low half counts.
    assert_eq!(outcome("r0 = 0x100000002 ll\nexit").verdict, Verdict::Pass);
    assert_eq!(outcome("r0 = -1\nexit").verdict, Verdict::Aborted);
    let write = "r1 = *(u32 *)(r1 + 0)\n*(u16 *)(r1 + 14) = 0x5a59\nr0 = 3\nexit";
    assert_eq!(outcome(write), Outcome::sent(Verdict::Tx, Port(7), b"0123456789abcdYZ".to_vec()));
}

#[test]
fn redirects() {
    let packet = b"0123456789abcdef".to_vec();
    let to = |port| Outcome::sent(Verdict::Redirect, Port(port), packet.clone());
    let call = |port: &str, flags: &str| format!("r1 = {port}\nr2 = {flags}\ncall redirect\n");
    assert_eq!(outcome(&(call("9", "0") + "exit")), to(9));
    assert_eq!(outcome(&(call("9", "1") + "exit")), Outcome::without_output(Verdict::Aborted));
    // The last one counts; another verdict cancels it; none at all is an error.
    assert_eq!(outcome(&(call("9", "0") + &call("4", "0") + "exit")), to(4));
    assert_eq!(outcome(&(call("9", "0") + "r0 = 1\nexit")), Outcome::without_output(Verdict::Drop));
    assert_eq!(outcome("r0 = 4\nexit"), Outcome::without_output(Verdict::Aborted));
    let map = |key: &str, flags: &str| format!("r1 = map[ports] ll\nr2 = {key}\nr3 = {flags}\ncall redirect_map\n");
    assert_eq!(outcome(&(map("4", "2") + "exit")), to(4));
    assert_eq!(outcome(&(map("5", "2") + "exit")).verdict, Verdict::Pass);
    assert_eq!(outcome(&(map("5", "0") + "exit")).verdict, Verdict::Aborted);
    assert_eq!(outcome(&(map("5", "3") + "exit")).verdict, Verdict::Tx);
    assert_eq!(outcome(&(map("-1", "1") + "exit")).verdict, Verdict::Drop);
    // The key is 32 bits; unknown flags abort.
    assert_eq!(outcome(&(map("0x100000003 ll", "0") + "exit")), to(3));
    assert_eq!(outcome(&(map("3", "4") + "exit")), Outcome::without_output(Verdict::Aborted));
    // An absent key cancels an earlier call.
    assert_eq!(outcome(&(call("9", "0") + &map("5", "0") + "r0 = 4\nexit")), Outcome::without_output(Verdict::Aborted));
    let all: Vec<u32> = outcome(&(map("0", "8") + "exit")).outputs.iter().map(|o| o.port.0).collect();
    assert_eq!(all, [1, 2]);
    let mut interp = interp(&(map("0", "24") + "exit"));
    interp.bind_ports(&Ports::bound([0, 2, 3, 4, 5].map(Port)));
    let others = interp.process(&Packet { bytes: &packet, port: Port(2) }, &CHOICES).unwrap();
    assert_eq!(others.outputs.iter().map(|o| o.port.0).collect::<Vec<_>>(), [0, 3, 4], "the map has five entries");
}

#[test]
fn the_context() {
    for (text, expected) in [
        ("r0 = *(u32 *)(r1 + 4)\nr2 = *(u32 *)(r1 + 0)\nr0 -= r2\nexit", 60),
        ("r0 = *(u32 *)(r1 + 8)\nr2 = *(u32 *)(r1 + 0)\nr0 -= r2\nexit", 0),
        ("r0 = *(u32 *)(r1 + 12)\nexit", 7),
        ("r0 = *(u32 *)(r1 + 16)\nexit", 0),
        // Addresses are 64 bits and positive.
        ("r0 = *(u32 *)(r1 + 0)\nr0 s>>= 32\nif r0 s> 0 goto +1\nexit\nr0 = 1\nexit", 1),
    ] {
        assert_eq!(r0(text), Ok(expected), "{text}");
    }
}

#[test]
fn time_chance_and_processor() {
    assert_eq!(r0("call ktime_get_ns\nexit"), Ok(1_000_000_007));
    assert_eq!(r0("call get_smp_processor_id\nexit"), Ok(3));
    let mut text = "r6 = 0\n".to_owned();
    for _ in 0..10 {
        text += "call get_prandom_u32\nr6 *= 100\nr6 += r0\n";
    }
    // After the eighth word the first one is repeated; the next packet begins with the first.
    let expected =
        [11, 12, 13, 14, 15, 16, 17, 18, 11, 12].iter().fold(0u64, |sum, x| sum.wrapping_mul(100).wrapping_add(*x));
    let mut interp = interp(&(text + "r0 = r6\nexit"));
    assert_eq!(interp.r0(&[]), Ok(expected));
    assert_eq!(interp.r0(&[]), Ok(expected));
}

/// The parser sees the packet in its current state, and answers 0 to what is no question.
#[test]
fn answers_of_the_parser() {
    let asked = |question: u64| format!("r2 = {question:#x} ll\nr1 = r6\ncall fl_parse\n");
    let offset_of_ipv4 = Question::Offset(Header::Ipv4.bit()).encode();
    // A tag, then IPv4.
    let mut packet = [0; 60];
    packet[12..19].copy_from_slice(&[0x81, 0, 0, 1, 8, 0, 0x45]);
    packet[21] = 20;
    let answer = |text: String| interp(&format!("r6 = r1\n{text}exit")).r0(&packet);
    assert_eq!(answer(asked(offset_of_ipv4)), Ok(18));
    assert_eq!(answer(asked(Question::Valid(Header::Vlan.bit() | Header::Tcp.bit()).encode())), Ok(2));
    assert_eq!(answer(asked(9 << 32)), Ok(0));
    // Without its first four bytes it has another type.
    let shortened = "r1 = r6\nr2 = 4\ncall xdp_adjust_head\n".to_owned();
    assert_eq!(answer(shortened + &asked(offset_of_ipv4)), Ok(14));
}

/// `r0` of a map helper; the key is on the stack at -4, the value at -16.
fn map_call(map: &str, helper: &str, key: i32, flags: i32) -> String {
    format!(
        "*(u32 *)(r10 - 4) = {key}\n*(u64 *)(r10 - 16) = {key}\nr1 = map[{map}] ll\nr2 = r10\nr2 += -4\n\
         r3 = r10\nr3 += -16\nr4 = {flags}\ncall {helper}\n"
    )
}

#[test]
fn results_of_map_helpers() {
    let hash = |helper, key, flags| map_call("hash", helper, key, flags);
    let array = |helper, key, flags| map_call("array", helper, key, flags);
    let add = |key| hash("map_update_elem", key, 0);
    let full = add(1) + &add(2) + &add(3);
    for (text, expected) in [
        (hash("map_lookup_elem", 1, 0), 0),
        (hash("map_update_elem", 1, 0), 0),
        (hash("map_update_elem", 1, 1), 0),
        (hash("map_update_elem", 1, 2), -2),
        (hash("map_update_elem", 1, 3), -22),
        (hash("map_update_elem", 1, 4), -22),
        (hash("map_update_elem", 1, -1), -22),
        (hash("map_delete_elem", 1, 0), -2),
        (add(1) + &hash("map_update_elem", 1, 1), -17),
        (add(1) + &hash("map_update_elem", 1, 2), 0),
        (add(1) + &hash("map_delete_elem", 1, 0), 0),
        (full.clone() + &add(4), -7),
        (full.clone() + &hash("map_update_elem", 4, 2), -2),
        (full.clone() + &add(3), 0),
        (full.clone() + &hash("map_update_elem", 3, 1), -17),
        (full.clone() + &hash("map_delete_elem", 2, 0) + &add(4), 0),
        (full + &hash("map_delete_elem", 2, 0) + &add(4) + &add(2), -7),
        (array("map_update_elem", 3, 0), 0),
        (array("map_update_elem", 3, 2), 0),
        (array("map_update_elem", 3, 1), -17),
        (array("map_update_elem", 4, 0), -7),
        (array("map_update_elem", 4, 1), -7),
        (array("map_update_elem", 3, 3), -22),
        (array("map_update_elem", 3, 4), -22),
        (array("map_update_elem", 4, 4), -7),
        (array("map_delete_elem", 3, 0), -22),
        (array("map_lookup_elem", 4, 0), 0),
        (map_call("ports", "map_lookup_elem", 5, 0), 0),
    ] {
        assert_eq!(r0(&(text.clone() + "exit")), Ok(expected as u64), "{text}");
    }
    let read = "\nif r0 == 0 goto +1\nr0 = *(u32 *)(r0 + 0)\nexit";
    assert_eq!(r0(&(add(5) + &hash("map_lookup_elem", 5, 0) + read)), Ok(5));
    assert_eq!(r0(&(array("map_lookup_elem", 3, 0) + read)), Ok(0));
    assert_eq!(r0(&(array("map_update_elem", 3, 0) + &array("map_lookup_elem", 3, 0) + read)), Ok(3));
    assert_eq!(r0(&(map_call("ports", "map_lookup_elem", 4, 0) + read)), Ok(4));
    assert_eq!(r0("r1 = map[.rodata][0]+1 ll\nr0 = *(u32 *)(r1 + 1)\nexit"), Ok(0x0605_0403));
    assert_eq!(r0("r1 = map[.data][0]+8 ll\n*(u32 *)(r1 - 4) = 7\nr0 = *(u64 *)(r1 - 8)\nexit"), Ok(0x7_0909_0909));
}

#[test]
fn values_outlive_their_entry_until_another_is_made() {
    let add = map_call("hash", "map_update_elem", 1, 0);
    let find = map_call("hash", "map_lookup_elem", 1, 0) + "r6 = r0\n";
    let delete = map_call("hash", "map_delete_elem", 1, 0);
    let read = "r0 = *(u64 *)(r6 + 0)\nexit";
    // Deleted: the address still leads to the old value, until the next entry reuses its slot, as in the kernel.
    assert_eq!(r0(&(add.clone() + &find + &delete + read)), Ok(1));
    let other = map_call("hash", "map_update_elem", 2, 0);
    assert_eq!(r0(&(add.clone() + &find + &delete + &other + read)), Ok(2));
    // Replaced: as in the kernel, the old address keeps the old value, and writes to it are lost.
    let replace =
        "*(u64 *)(r10 - 16) = 50\nr1 = map[hash] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\ncall 2\n";
    assert_eq!(r0(&(add.clone() + &find + replace + read)), Ok(1));
    let lost = add.clone() + &find + replace + "*(u64 *)(r6 + 0) = 9\n" + &find + read;
    assert_eq!(r0(&lost), Ok(50));
    // A write through a valid address is kept, and the same entry has the same address.
    let kept = add.clone() + &find + "*(u64 *)(r6 + 0) = 9\n" + &find + read;
    assert_eq!(r0(&kept), Ok(9));
    let same = add + &find + "r7 = r6\n" + &find + "r7 -= r6\nr0 = r7\nexit";
    assert_eq!(r0(&same), Ok(0));
}
