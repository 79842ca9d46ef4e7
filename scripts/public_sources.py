# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fetches packages from Debian, crates.io, PyPI and npm for scripts that compile parts of them, into target/public."""

import os
import re
import shutil
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

from linux_sources import TOP, Lacking, run, tool

CACHE = TOP / "target" / "public"
RELEASE = "bookworm"
APT = """deb [signed-by={key}] {mirror} {suite} main
deb-src [signed-by={key}] {mirror} {suite} main
"""
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
BPF_MACHINES = (0, 247)


def last_line(text):
    return (text.strip().splitlines() or ["no reason given"])[-1]


def mirror():
    """Debian mirror of this machine."""
    listed = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    for path in listed:
        text = path.read_text(errors="replace") if path.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[.*?\])?) *(https?://\S+/debian)/?(?=\s)", text, re.MULTILINE)
        if found:
            return found[1]
    raise Lacking("no mirror of Debian in /etc/apt; this script fetches Debian's packages")


def apt_configuration():
    """Creates a separate apt configuration, so that the machine's is not changed."""
    folder = CACHE / "apt"
    configuration = folder / "apt.conf"
    if (folder / ".complete").exists():
        return configuration
    for part in ["lists/partial", "cache/archives/partial", "state"]:
        (folder / part).mkdir(parents=True, exist_ok=True)
    suites = [RELEASE, f"{RELEASE}-backports"]
    (folder / "sources.list").write_text("".join(APT.format(key=KEY, mirror=mirror(), suite=suite) for suite in suites))
    configuration.write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list";\nDir::Etc::SourceParts "-";\nDir::State "{folder}/state";\n'
        f'Dir::State::Lists "{folder}/lists";\nDir::State::status "/var/lib/dpkg/status";\nDir::Cache "{folder}/cache";\n'
        'APT::Sandbox::User "root";\nAPT::Default-Release "";\n')
    updated = run([tool("apt-get", "apt"), "update", "-qq"], env=environment(APT_CONFIG=str(configuration)))
    if updated.returncode != 0:
        raise Lacking(f"Debian's list of packages could not be fetched: {last_line(updated.stderr)}")
    (folder / ".complete").touch()
    return configuration


def environment(**more):
    return {**os.environ, **more}


def unpack(archive, folder):
    if archive.name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    elif archive.name.endswith(".deb"):
        done = run(["dpkg-deb", "-x", archive, folder])
        if done.returncode != 0:
            raise Lacking(f"`{archive.name}` could not be unpacked: {last_line(done.stderr)}")
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")


def from_source(package, _version, folder):
    """Fetches the upstream source of a Debian package."""
    got = run([tool("apt-get", "apt"), "source", "-qq", "--only-source", "--download-only", "--tar-only", package], cwd=folder,
              env=environment(APT_CONFIG=str(apt_configuration())))
    archives = [path for path in folder.iterdir() if ".orig" in path.name or path.name.endswith((".tar.xz", ".tar.gz"))]
    if got.returncode != 0 or not archives:
        raise Lacking(last_line(got.stderr))
    version = re.sub(r"^.*?_|\.orig\.tar\.\w+$|\.tar\.\w+$", "", archives[0].name)
    for archive in archives:
        unpack(archive, folder)
        archive.unlink()
    return version


def from_debian(package, _version, folder):
    """Fetches a binary Debian package."""
    got = run([tool("apt-get", "apt"), "download", "-qq", package], cwd=folder,
              env=environment(APT_CONFIG=str(apt_configuration())))
    archives = list(folder.glob("*.deb"))
    if got.returncode != 0 or not archives:
        raise Lacking(last_line(got.stderr))
    version = archives[0].name.split("_")[1].replace("%3a", ":")
    unpack(archives[0], folder)
    archives[0].unlink()
    return version


def from_crates(package, version, folder):
    """Fetches a crate with `cargo vendor`."""
    (folder / "src").mkdir()
    (folder / "src/lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        f'[package]\nname = "fetched"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n'
        f'{package} = {{ version = "={version}", default-features = false }}\n')
    got = run([tool("cargo", "cargo"), "vendor", "-q", "--versioned-dirs"], cwd=folder)
    found = list((folder / "vendor").glob(f"{package}-{version}*"))
    if got.returncode != 0 or not found:
        raise Lacking(last_line(got.stderr))
    for part in found[0].iterdir():
        if part.name not in ("src", "Cargo.toml", "Cargo.lock"):
            shutil.move(part, folder / part.name)
    shutil.rmtree(folder / "src")
    if (found[0] / "src").exists():
        shutil.move(found[0] / "src", folder / "src")
    shutil.rmtree(folder / "vendor")
    return version


def from_pypi(package, version, folder):
    """Fetches a PyPI package with `pip download`."""
    common = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "-d", folder]
    # A wheel is only unpacked; pip would build a source archive to learn its name.
    got = run([*common, f"{package}=={version}"])
    archives = [path for path in folder.iterdir() if path.is_file()]
    if got.returncode != 0 or not archives:
        raise Lacking(last_line(got.stderr))
    unpack(archives[0], folder)
    archives[0].unlink()
    return version


def from_npm(package, version, folder):
    """Fetches an npm package."""
    got = run([tool("npm", "npm"), "pack", "--silent", f"{package}@{version}"], cwd=folder)
    archives = list(folder.glob("*.tgz"))
    if got.returncode != 0 or not archives:
        raise Lacking(last_line(got.stderr))
    unpack(archives[0], folder)
    archives[0].unlink()
    return version


ORIGINS = {"source": from_source, "deb": from_debian, "crate": from_crates, "pypi": from_pypi, "npm": from_npm}


def fetched(origin, package, version):
    """Folder of a package's files, and its version. Fetches the package once."""
    folder = CACHE / "packages" / f"{origin}-{package}{'-' + version if version else ''}"
    stamp = folder / ".complete"
    if stamp.exists():
        return folder, stamp.read_text().strip()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = ORIGINS[origin](package, version, folder)
    stamp.write_text(found + "\n")
    return folder, found


def embedded(path):
    """eBPF objects in a file: ELF files of machine `bpf` at any offset (a skeleton embeds one)."""
    data, at, found = path.read_bytes(), 0, []
    while (at := data.find(b"\x7fELF\x02\x01\x01", at)) >= 0:
        header = data[at:at + 64]
        if len(header) == 64:
            kind, machine = struct.unpack_from("<HH", header, 16)
            sections, = struct.unpack_from("<Q", header, 40)
            size, count = struct.unpack_from("<HH", header, 58)
            end = at + sections + size * count
            # The file contains the section names; a program's name may be a suffix of `.relxdp`.
            if kind == 1 and machine in BPF_MACHINES and end <= len(data) and re.search(rb"(\0|\0\.rela?)\??xdp", data[at:end]):
                found.append(data[at:end])
        at += 4
    return found
