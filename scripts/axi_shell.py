# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The test that scripts/axi-bench runs in the simulation.

For each seed: a reset, entries of maps through AXI4-Lite, then packets under random stalls of both streams, while two
tasks access registers under random stalls of all five channels. A monitor checks the rules of both protocols in every
cycle. In the end packets, counters and map entries are those expected.
"""

import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, SimTimeoutError, with_timeout
from cocotbext.axi import (
    AxiLiteBus, AxiLiteMaster, AxiResp, AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource)

ENOENT, EEXIST = 2, 17
# The kinds of maps whose keys may be any bytes: hash maps and LRU maps.
KEYED = 1, 3
# A transaction that is busy for so many reads of its status is stuck.
MOST_POLLS = 20000


def stalls(rng, share):
    """A generator of pauses: runs of cycles with and without a pause, a share of cycles with one."""
    while True:
        if rng.random() < 0.2:
            # A long run, in which buffers fill or run empty.
            yield from [rng.random() < share] * rng.randrange(1, 40)
        else:
            yield rng.random() < share


class Monitor:
    """Checks the outputs of the shell in every cycle."""

    def __init__(self, dut):
        self.dut, self.faults, self.cycles, self.stalled = dut, [], 0, 0
        self.outstanding = {"b": 0, "r": 0}
        self.waiting = {}
        self.first_user = None
        self.addresses = self.data = self.responses = self.reads = 0

    def fault(self, text):
        self.faults.append(f"cycle {self.cycles}: {text}")

    def payload(self, channel):
        dut = self.dut
        return {
            "m_axis": lambda: (int(dut.m_axis_tdata.value), int(dut.m_axis_tkeep.value), int(dut.m_axis_tlast.value),
                               int(dut.m_axis_tuser.value)),
            "b": lambda: int(dut.s_axil_bresp.value),
            "r": lambda: (int(dut.s_axil_rdata.value), int(dut.s_axil_rresp.value)),
        }[channel]()

    def check_word(self):
        """A word that is given at the output."""
        _, keep, last, user = self.payload("m_axis")
        width = len(self.dut.m_axis_tkeep)
        if keep == 0 or keep & (keep + 1) != 0 or (not last and keep != (1 << width) - 1):
            self.fault(f"m_axis: tkeep {keep:#x}, tlast {last}")
        if self.first_user not in (None, user):
            self.fault("m_axis: tuser changes within a packet")
        self.first_user = None if last else user

    async def run(self):
        dut = self.dut
        channels = {
            "m_axis": (dut.m_axis_tvalid, dut.m_axis_tready),
            "b": (dut.s_axil_bvalid, dut.s_axil_bready),
            "r": (dut.s_axil_rvalid, dut.s_axil_rready),
        }
        in_reset = False
        while True:
            await RisingEdge(dut.aclk)
            self.cycles += 1
            if int(dut.aresetn.value) == 0:
                # The first edge of a reset clears what came before it.
                if in_reset:
                    for channel, (valid, _) in channels.items():
                        if int(valid.value):
                            self.fault(f"{channel}: valid during a reset")
                in_reset, self.waiting, self.first_user = True, {}, None
                self.outstanding = {"b": 0, "r": 0}
                self.addresses = self.data = 0
                continue
            in_reset = False
            for channel, (valid, ready) in channels.items():
                is_valid, is_ready = int(valid.value), int(ready.value)
                if channel in self.waiting:
                    if not is_valid:
                        self.fault(f"{channel}: valid falls before ready")
                    elif self.payload(channel) != self.waiting[channel]:
                        self.fault(f"{channel}: the payload changes before ready")
                self.waiting.pop(channel, None)
                if is_valid and not is_ready:
                    self.waiting[channel] = self.payload(channel)
                    self.stalled += 1
                if is_valid and channel in self.outstanding and self.outstanding[channel] == 0:
                    self.fault(f"{channel}: a response without a request")
                if is_valid and is_ready:
                    if channel == "m_axis":
                        self.check_word()
                    else:
                        self.outstanding[channel] -= 1
            self.addresses += int(dut.s_axil_awvalid.value) & int(dut.s_axil_awready.value)
            self.data += int(dut.s_axil_wvalid.value) & int(dut.s_axil_wready.value)
            while self.addresses and self.data:
                self.addresses, self.data = self.addresses - 1, self.data - 1
                self.outstanding["b"] += 1
            self.outstanding["r"] += int(dut.s_axil_arvalid.value) & int(dut.s_axil_arready.value)


class Host:
    """Software at the registers."""

    def __init__(self, case, master):
        self.case, self.master, self.accesses, self.transactions = case, master, 0, 0

    async def read(self, address, expected=AxiResp.OKAY):
        answer = await self.master.read(address, 4)
        self.accesses += 1
        assert answer.resp == expected, f"read of {address:#x}: {answer.resp!r}, expected {expected!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, address, data, expected=AxiResp.OKAY):
        """Writes bytes; those beside the last word's are not strobed."""
        for at in range(0, len(data), 4):
            answer = await self.master.write(address + at, data[at : at + 4])
            self.accesses += 1
            assert answer.resp == expected, f"write of {address + at:#x}: {answer.resp!r}, expected {expected!r}"

    async def bytes(self, address, count):
        words = [await self.read(address + at) for at in range(0, count, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)[:count]

    async def command(self, of, operation, flags=0):
        """A transaction; its error."""
        registers, address = self.case["registers"], of["address"]
        await self.write(address + registers["COMMAND"], bytes([self.case["operations"][operation], flags]))
        self.transactions += 1
        for _ in range(MOST_POLLS):
            status = await self.read(address + registers["STATUS"])
            if status & 1 == 0:
                return status >> 8
        raise AssertionError(f"map {of['name']} stays busy")

    async def update(self, of, key, value, flags=0):
        await self.write(of["key_address"], key)
        await self.write(of["value_address"], value)
        return await self.command(of, "UPDATE", flags)

    async def lookup(self, of, key):
        await self.write(of["key_address"], key)
        error = await self.command(of, "LOOKUP")
        return error or await self.bytes(of["value_address"], of["value_bytes"])

    async def delete(self, of, key):
        await self.write(of["key_address"], key)
        return await self.command(of, "DELETE")

    async def entries(self, of):
        await self.write(of["address"] + self.case["registers"]["CURSOR"], bytes(4))
        found = {}
        while (error := await self.command(of, "NEXT")) == 0:
            key = await self.bytes(of["key_address"], of["key_bytes"])
            found[key] = await self.bytes(of["value_address"], of["value_bytes"])
        assert error == ENOENT, f"map {of['name']}: a listing ends with error {error}"
        return found

    async def counter(self, name):
        address = self.case["counters"][name]
        low = await self.read(address)
        return low | await self.read(address + 4) << 32


async def transactions(host, rng, ends):
    """Inserts, changes and deletes entries of its own in maps with keys while packets pass; returns when told to."""
    keyed = [one for one in host.case["maps"] if one["kind"] in KEYED]
    while not ends():
        if not keyed:
            await ClockCycles(host.clock, 10)
            continue
        of = rng.choice(keyed)
        known = {bytes.fromhex(key) for key, _ in of["expected"]}
        key = rng.randbytes(of["key_bytes"])
        if key in known:
            continue
        first, second = rng.randbytes(of["value_bytes"]), rng.randbytes(of["value_bytes"])
        assert await host.delete(of, key) == ENOENT
        assert await host.update(of, key, first, 1) == 0
        assert await host.lookup(of, key) == first
        assert await host.update(of, key, second, 1) == EEXIST
        assert await host.update(of, key, second, 2) == 0
        assert await host.lookup(of, key) == second
        assert await host.delete(of, key) == 0
        assert await host.lookup(of, key) == ENOENT


async def other_accesses(host, rng, ends):
    """Reads counters, and accesses that are refused."""
    counters = list(host.case["counters"].values())
    before = dict.fromkeys(counters, 0)
    while not ends():
        kind = rng.randrange(4)
        if kind < 2:
            address = rng.choice(counters)
            now = await host.read(address)
            assert now >= before[address], f"the counter at {address:#x} falls"
            before[address] = now
        elif kind == 2:
            await host.read(host.case["no_address"], AxiResp.DECERR)
            await host.write(host.case["no_address"], bytes(rng.randrange(1, 5)), AxiResp.DECERR)
        else:
            await host.write(rng.choice(counters), bytes(4), AxiResp.SLVERR)


def same(what, found, expected):
    assert len(found) == len(expected), f"{what}: {len(found)} found, {len(expected)} expected"
    for number, (one, other) in enumerate(zip(found, expected)):
        assert one == other, f"{what} {number}: {one}, expected {other}"


async def round_of(dut, case, seed, drivers):
    """All packets once, after a reset. Returns the figures."""
    source, sink, master = drivers
    rng = random.Random(seed)
    share = [0.1, 0.3, 0.6][seed % 3]
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, 5)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    host = Host(case, master)
    host.clock = dut.aclk
    for _ in range(MOST_POLLS):
        if await host.read(case["status"]) == 1:
            break
    for of in case["maps"]:
        for key, value in of["initial"]:
            error = await host.update(of, bytes.fromhex(key), bytes.fromhex(value))
            assert error == 0, f"initial entry of {of['name']}: error {error}"

    channels = (source, sink, master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                master.read_if.ar_channel, master.read_if.r_channel)
    for channel in channels:
        channel.set_pause_generator(stalls(random.Random(rng.random()), share))
    done = False
    tasks = [cocotb.start_soon(task(host, random.Random(rng.random()), lambda: done))
             for task in (transactions, other_accesses)]
    expected = [one for one in case["vectors"] if one["out"] is not None]
    for one in case["vectors"]:
        await source.send(AxiStreamFrame(bytes.fromhex(one["bytes"]), tuser=one["time"] << 32 | one["port"]))
    frames = []
    for number, _ in enumerate(expected):
        try:
            frames.append(await with_timeout(sink.recv(), 200, "us"))
        except SimTimeoutError:
            raise AssertionError(f"packet {number} does not leave") from None
    await source.wait()
    await ClockCycles(dut.aclk, 400)
    done = True
    for task in tasks:
        await task
    for channel in channels:
        channel.clear_pause_generator()
        channel.pause = False
    assert sink.empty(), "more packets than expected"

    def user(frame):
        return frame.tuser[0] if isinstance(frame.tuser, list) else frame.tuser

    mask = lambda verdict: 0xffffffff if verdict in (3, 4) else 0
    found = [(bytes(frame.tdata).hex(), user(frame) >> 32, user(frame) & mask(user(frame) >> 32)) for frame in frames]
    same("packet", found, [(one["out"], one["verdict"], one["out_port"] & mask(one["verdict"])) for one in expected])
    verdicts = [one["verdict"] for one in case["vectors"]]
    sizes = [sum(len(one["bytes"]) // 2 for one in case["vectors"]), sum(len(one["out"]) // 2 for one in expected)]
    counts = {"PACKETS_IN": len(verdicts), "PACKETS_OUT": len(expected), "BYTES_IN": sizes[0], "BYTES_OUT": sizes[1],
              "ABORTED": verdicts.count(0), "DROPPED": verdicts.count(1), "PASSED": verdicts.count(2),
              "SENT_BACK": verdicts.count(3), "REDIRECTED": verdicts.count(4), "SLOW": 0, "DISCARDED": 0}
    for name, count in counts.items():
        found = await host.counter(name)
        assert found == count, f"counter {name}: {found}, expected {count}"
    entries = 0
    for of in case["maps"]:
        found = await host.entries(of)
        known = {bytes.fromhex(key): bytes.fromhex(value) for key, value in of["expected"]}
        assert found == known, f"map {of['name']}: {found}, expected {known}"
        entries += len(found)
    return (f"seed {seed}: {len(verdicts)} packets in, {len(expected)} out, {share:.0%} stalls, "
            f"{host.accesses} accesses, {host.transactions} transactions, {entries} entries")


@cocotb.test()
async def shell(dut):
    path = Path(os.environ["FLOWLOOM_AXI_CASE"])
    case = json.loads(path.read_text())
    lines = []
    monitor = Monitor(dut)
    try:
        for name in ("awprot", "arprot"):
            getattr(dut, f"s_axil_{name}").value = 0
        cocotb.start_soon(Clock(dut.aclk, 4, unit="ns").start())
        cocotb.start_soon(monitor.run())
        dut.aresetn.value = 0
        source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.aclk, dut.aresetn, False)
        sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.aclk, dut.aresetn, False)
        master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.aclk, dut.aresetn, False)
        for driver in (source, sink, master.write_if, master.read_if):
            driver.log.setLevel("WARNING")
        for seed in case["seeds"]:
            lines.append(await round_of(dut, case, seed, (source, sink, master)))
            assert not monitor.faults, "; ".join(monitor.faults[:3])
        lines.append(f"{monitor.cycles} cycles, {monitor.stalled} stalls of the outputs, no fault of the protocol")
    except BaseException as error:
        # A fault of the protocol first: what follows comes from it.
        lines.append("; ".join(monitor.faults[:3]) or f"{type(error).__name__}: {error}"[:400])
        raise
    finally:
        (path.parent / "figures.txt").write_text("\n".join(lines) + "\n")
