"""Shows the fibers of sinew in gdb, for a live process or a core file.

    (gdb) source tools/gdb/sinew.py
    (gdb) fibers                  lists all fibers, with their states and waits
    (gdb) fiber 7 bt              the backtrace of fiber 7; further words go to `bt`
    (gdb) fiber apply all bt      the backtraces of all suspended fibers

The script needs the symbols of the program, but no types: a table in the program tells the offsets
of all fields. A running fiber has its registers in its carrier's thread: use gdb's own commands for
that thread.
"""

import re
import struct

import gdb
from gdb.unwinder import Unwinder

TABLE = "sinew::fiber::debugger::SINEW_FIBERS"
VERSION = 1
FIELDS = (
    "version chunks next_chunk block blocks id life wake wait wait_address context carrier flags extra "
    "name name_text resume_at frame_pointer base_register frame"
).split()

KINDS = (
    "nothing, sleep, park, join, a predicate, a future, the end of a scope, a lock, a key, a condition variable, "
    "an event, a value, a semaphore, room to send, something to receive, the first of several, "
    "something to read, room to write, blocking work"
).split(", ")

# Bits of the words in a fiber's block.
REFERENCES = 0xFFFFFFFF
STARTED = 1 << 32
FINISHED = 1 << 36
WAITING = 3
PROXY = 1 << 7


def word(address):
    """Returns the 64-bit word at an address."""
    memory = gdb.selected_inferior().read_memory(address, 8)
    return struct.unpack("<Q", bytes(memory))[0]


def find(name):
    """Returns the address of a static, or None. Works with and without type information."""
    last = name.split("::")[-1]
    listed = gdb.execute("info variables ^.*%s" % last, to_string=True)
    match = re.search(r"(0x[0-9a-f]+) +%s\b" % re.escape(name), listed)
    if match:
        return int(match.group(1), 16)
    try:
        return int(gdb.parse_and_eval("&%s" % name))
    except gdb.error:
        return None


def unsigned():
    """Returns gdb's type for an unsigned 64-bit word."""
    return gdb.selected_inferior().architecture().integer_type(64, False)


def table():
    """Reads the table of offsets and sizes from the program."""
    address = find(TABLE)
    if address is None:
        raise gdb.GdbError("this program has no symbols of sinew: it is stripped, or has not been started")
    values = [word(address + 8 * index) for index in range(len(FIELDS))]
    found = dict(zip(FIELDS, values))
    if found["version"] != VERSION:
        raise gdb.GdbError("the program's table has version %d, but this script knows only version %d" % (found["version"], VERSION))
    return found


class Fiber:
    """One fiber, read from the memory of the program."""

    def __init__(self, where, block):
        get = lambda field: word(block + where[field])
        self.where, self.block, self.id = where, block, get("id")
        life, wake, wait = get("life"), get("wake"), get("wait")
        self.alive = life & REFERENCES != 0 and life & FINISHED == 0
        self.flags = get("flags") & 0xFFFFFFFF
        self.context = get("context")
        self.waits = wake & 3 == WAITING
        self.kind = KINDS[wait >> 56] if wait >> 56 < len(KINDS) else "?"
        self.address = get("wait_address")
        self.started = life & STARTED != 0
        self.extra = get("extra")

    @property
    def suspended(self):
        return self.waits and self.context != 0

    @property
    def state(self):
        if not self.started:
            return "not started" + (", waits for %s" % self.kind if self.kind != "nothing" else "")
        if not self.waits:
            return "ready or running"
        if not self.context:
            return "running"
        # For a sleep, the address is not an address but the moment at which the sleep ends.
        where = " at %#x" % self.address if self.address and self.kind != "sleep" else ""
        return "waits for %s%s" % (self.kind, where)

    @property
    def name(self):
        if not self.extra:
            return None
        text, length = (word(self.extra + self.where["name"] + offset) for offset in (0, 8))
        if not text or length > 4096:
            return None
        memory = gdb.selected_inferior().read_memory(text + self.where["name_text"], length)
        return bytes(memory).decode("utf-8", "replace")

    def registers(self):
        """Returns the saved program counter, stack pointer, frame pointer and base register."""
        at = lambda field: word(self.context + self.where[field])
        return at("resume_at"), self.context + self.where["frame"], at("frame_pointer"), at("base_register")

    def __str__(self):
        name = self.name
        named = ' "%s"' % name if name is not None else ""
        return "fiber %d%s: %s" % (self.id, named, self.state)


def fibers():
    """Returns all fibers that have not ended, the oldest first."""
    where = table()
    found = []
    try:
        chunk = word(where["chunks"])
    except gdb.MemoryError:
        raise gdb.GdbError("the program has not started: use `run` first")
    while chunk:
        for index in range(1, where["blocks"] + 1):
            fiber = Fiber(where, chunk + index * where["block"])
            if fiber.alive and not fiber.flags & PROXY:
                found.append(fiber)
        chunk = word(chunk + where["next_chunk"])
    return sorted(found, key=lambda fiber: fiber.id)


class Detour(Unwinder):
    """Makes gdb believe that a fiber called the innermost frame of the selected thread. So gdb
    walks the fiber's stack, and no register has to be changed."""

    def __init__(self):
        super().__init__("sinew")
        self.enabled = False
        self.target = None
        self.start = None

    def __call__(self, pending):
        if self.target is None:
            return None
        names = ("rip", "rsp", "rbp", "rbx") if self.intel() else ("pc", "sp", "x29", "x19")
        sp = int(pending.read_register(names[1]))
        if sp != self.start:
            return None

        class Id:
            pass

        identity = Id()
        identity.sp = gdb.Value(sp).cast(unsigned())
        identity.pc = pending.read_register(names[0])
        info = pending.create_unwind_info(identity)
        for name, value in zip(names, self.target):
            kind = pending.read_register(name).type
            info.add_saved_register(name, gdb.Value(value).cast(unsigned()).cast(kind))
        return info

    @staticmethod
    def intel():
        return "x86-64" in gdb.selected_inferior().architecture().name()

    def backtrace(self, fiber, options):
        """Returns the backtrace of a suspended fiber as text."""
        gdb.execute("frame 0", to_string=True)
        self.start = int(gdb.parse_and_eval("$sp"))
        self.target = fiber.registers()
        self.enabled = True
        try:
            gdb.invalidate_cached_frames()
            lines = gdb.execute("bt %s" % options, to_string=True).splitlines()
        finally:
            self.enabled, self.target = False, None
            gdb.invalidate_cached_frames()
        # The first frame belongs to the thread.
        return "\n".join(line for line in lines if not line.startswith("#0 "))


DETOUR = Detour()
gdb.unwinder.register_unwinder(None, DETOUR, replace=True)


class Fibers(gdb.Command):
    """Lists the fibers of sinew, with their states and waits."""

    def __init__(self):
        super().__init__("fibers", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        for fiber in fibers():
            print(fiber)


class FiberCommand(gdb.Command):
    """fiber N bt [options]: the backtrace of a suspended fiber of sinew.
fiber apply all bt [options]: the backtraces of all suspended fibers."""

    def __init__(self):
        super().__init__("fiber", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = argument.split()
        everybody = words[:2] == ["apply", "all"]
        which, rest = (None, words[2:]) if everybody else (words[:1], words[1:])
        if rest[:1] not in (["bt"], ["backtrace"]) or not everybody and not which[0].isdigit():
            raise gdb.GdbError("use `fiber N bt` or `fiber apply all bt`")
        chosen = [fiber for fiber in fibers() if everybody or fiber.id == int(which[0])]
        if not chosen and not everybody:
            raise gdb.GdbError("there is no fiber %s; `fibers` lists all fibers" % which[0])
        for fiber in chosen:
            print(fiber)
            if fiber.suspended:
                # gdb counts frames from the thread's own frame, which is not shown.
                options = [str(int(word) + 1) if word.isdigit() else word for word in rest[1:]]
                print(DETOUR.backtrace(fiber, " ".join(options)))
            elif not everybody and fiber.started:
                raise gdb.GdbError("the fiber is not suspended; `thread apply all bt` shows running fibers")


Fibers()
FiberCommand()
