# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fetches Linux sources from Debian packages for scripts that compile parts of them. Cached in target/linux."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
CACHE = TOP / "target" / "linux"
# Folders of the kernel tree that the compilations read.
NEEDED = ["samples/bpf", "tools/testing/selftests/bpf", "tools/include", "tools/lib/bpf", "include/uapi",
          "arch/x86/include/uapi", "scripts/bpf_doc.py"]
SELFTESTS = "tools/testing/selftests/bpf"
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
SIGNS = ["-D__TARGET_ARCH_x86", "-mlittle-endian", "-w", "-Werror=implicit-function-declaration"]


class Lacking(Exception):
    """A missing requirement of this machine, with a hint how to install it."""


@dataclass
class Made:
    """Result of compiling one source file."""
    name: str
    source: str
    compiler: str = ""
    command: str = ""
    error: str = ""


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **more)


def say(text):
    print(text, file=sys.stderr, flush=True)


def tool(name, package):
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    if not found:
        raise Lacking(f"`{name}` is missing; install it with: apt-get install {package}")
    return found


def compilers(first):
    """Installed clangs, `first` first, then the newest."""
    numbered = []
    for folder in os.environ["PATH"].split(":"):
        for path in Path(folder or ".").glob("clang-[0-9]*"):
            if re.fullmatch(r"clang-\d+", path.name):
                numbered.append((int(path.name.split("-")[1]), path.name))
    names = [name for _, name in sorted(set(numbered), reverse=True)]
    names = names or ([c for c in ["clang"] if shutil.which(c)])
    if first:
        tool(first, first)
        names = [first] + [name for name in names if name != first]
    if not names:
        raise Lacking("no clang is installed; install one with: apt-get install clang-19 (or clang-14)")
    return names


def fetch(package):
    """Downloads a package into the cache. Returns its path."""
    for old in CACHE.glob(f"{package}_*.deb"):
        old.unlink()
    got = run([tool("apt-get", "apt"), "download", "-q", package], cwd=CACHE)
    files = list(CACHE.glob(f"{package}_*.deb"))
    if got.returncode != 0 or not files:
        reason = got.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise Lacking(f"`{package}` could not be downloaded ({reason[0]}); try: apt-get update")
    return files[0]


def kernel_tree(version):
    """Unpacks the sources of a kernel. A stamp file marks them as complete."""
    tree = CACHE / f"linux-source-{version}"
    stamp = tree / ".complete"
    if stamp.exists():
        return tree
    say(f"fetching linux-source-{version}")
    package = fetch(f"linux-source-{version}")
    shutil.rmtree(tree, ignore_errors=True)
    outer = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    inner = subprocess.Popen(["tar", "-xOf", "-", f"./usr/src/linux-source-{version}.tar.xz"],
                             stdin=outer.stdout, stdout=subprocess.PIPE)
    wanted = [f"linux-source-{version}/{path}" for path in NEEDED]
    unpack = run(["tar", "-xJf", "-", "-C", CACHE, *wanted], stdin=inner.stdout)
    outer.wait()
    inner.wait()
    if unpack.returncode != 0:
        raise Lacking(f"`{package.name}` could not be unpacked: {unpack.stderr.strip()}")
    package.unlink()
    stamp.write_text(package.name + "\n")
    return tree


def headers(tree):
    """Installs the tree's libbpf headers: `bpf/` with the helper definitions generated from its uapi."""
    folder = tree / "headers" / "bpf"
    if (folder / ".complete").exists():
        return folder.parent
    folder.mkdir(parents=True, exist_ok=True)
    for header in (tree / "tools/lib/bpf").glob("*.h"):
        shutil.copy(header, folder)
    made = run([sys.executable, tree / "scripts/bpf_doc.py", "--header", "--file", tree / "include/uapi/linux/bpf.h"])
    if made.returncode != 0:
        raise Lacking(f"bpf_helper_defs.h could not be made: {made.stderr.strip()}")
    (folder / "bpf_helper_defs.h").write_text(made.stdout)
    (folder / ".complete").touch()
    return folder.parent


def vmlinux():
    """Folder of a `vmlinux.h` with the types of the running kernel."""
    folder = CACHE / "vmlinux" / os.uname().release
    header = folder / "vmlinux.h"
    if not header.exists():
        types = Path("/sys/kernel/btf/vmlinux")
        if not types.exists():
            raise Lacking(f"{types} is missing; a kernel with CONFIG_DEBUG_INFO_BTF has it")
        dump = run([tool("bpftool", "bpftool"), "btf", "dump", "file", types, "format", "c"])
        if dump.returncode != 0:
            raise Lacking(f"vmlinux.h could not be made: {dump.stderr.strip()}")
        folder.mkdir(parents=True, exist_ok=True)
        header.write_text(dump.stdout)
    return folder


def system_folders(compiler):
    """System include folders of the compiler, which it does not search for a bpf target."""
    shown = run([compiler, "-v", "-E", "-"], stdin=subprocess.DEVNULL).stderr
    listed = re.search(r"<\.\.\.> search starts here:\n(.*?)End of search", shown, re.DOTALL)
    return [folder.strip() for folder in listed.group(1).splitlines()] if listed else []


def include_flags(tree, first, compiler):
    """Include flags of a bpf program: folders of the tree, then those of the machine."""
    # Compile inside the tree, so that source lines name files relative to the tree.
    base = ["-fdebug-compilation-dir=.", "-I", vmlinux(), "-I", headers(tree).relative_to(tree)]
    base += [word for folder in first for word in ("-I", folder)]
    # The kernel's uapi headers come last: they are written for the kernel, and only fill gaps of the machine's headers.
    after = [*system_folders(compiler), "tools/include", "include", "include/uapi", "arch/x86/include/uapi"]
    return [str(word) for word in base] + [w for folder in after for w in ("-idirafter", str(folder))]


def first_error(text):
    for line in text.splitlines():
        if re.search(r"\berror\b", line):
            return re.sub(r"^.*?/(linux-source-[\d.]+|vmlinux/[^/]+)/", "", line)
    return (text.strip().splitlines() or ["no message"])[0]


def compile_one(tree, compiler, words, source, target):
    part = target.with_suffix(".part")
    command = [compiler, *words, "-c", str(source.relative_to(tree)), "-o", str(part)]
    result = run(command, cwd=tree)
    if result.returncode != 0:
        part.unlink(missing_ok=True)
        return first_error(result.stderr)
    part.rename(target)
    return ""


def make(made, target, names, before, words_for, build):
    """Builds `target` with the first compiler that succeeds, unless it is up to date. Returns the result."""
    for compiler in names:
        words = words_for(compiler)
        command = " ".join([compiler, *words])
        old = before.get(made.name)
        if old and old.command == command and not old.error and target.exists():
            return old
        error = build(compiler, words, target)
        if not error:
            made.compiler, made.command, made.error = compiler, command, ""
            return made
        # If no compiler accepts the file, report the error of the newest one.
        if not made.error:
            made.compiler, made.command, made.error = compiler, command, error
    target.unlink(missing_ok=True)
    return made


def read_list(path):
    if not path.exists():
        return {}
    return {entry["name"]: Made(**entry) for entry in json.loads(path.read_text())}
