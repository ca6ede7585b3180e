"""The table of bad input for external programs and executors of jobs."""

import tcsaea_torch as tc
from tests.contracts.bad_input import bad, callables, callee, reals

callee("CommandObjective", tc.CommandObjective, lambda: {"command": ["sh", "-c", "{x0}"]})
parts = "a sequence of strings such as ['./simulate', '{x0}']"
bad("CommandObjective", "command", [
    ("one-text", "./simulate {x0}", parts),
    ("none", None, parts),
    ("number", 3, parts),
    ("empty", [], parts),
    ("no-program", ["", "{x0}"], parts),
    ("number-inside", ["sh", 3], parts, "3 (int) in it"),
    ("bytes-inside", [b"sh"], parts, "b'sh'"),
    ("missing", ["./simulate", "{x0}"], "begin with a program that is there", "'simulate'"),
    ("no-placeholder", ["sh", "x0"], "placeholders such as {x0}, if", "('sh', 'x0')"),
    ("escaped", ["sh", "{{x0}}"], "placeholders such as {x0}, if", "'{{x0}}'"),
    ("open-brace", ["sh", "{x0"], "braces around placeholders only", "'{x0'"),
    ("unknown", ["sh", "{t}"], "placeholders {x0}, {x1}, ... (others need names=)", "{t} in '{t}'"),
    ("empty-placeholder", ["sh", "{}"], "placeholders {x0}, {x1}, ...", "{} in '{}'"),
    ("leading-zero", ["sh", "{x01}"], "placeholders {x0}, {x1}, ...", "{x01}"),
    ("attribute", ["sh", "{x0.real}"], "placeholders {x0}, {x1}, ...", "{x0.real}"),
    ("conversion", ["sh", "{x0!r}"], "placeholders {x0}, {x1}, ...", "{x0!r}"),
    ("format", ["sh", "{x0:q}"], "formats of numbers", "{x0:q} in '{x0:q}'"),
    ("nested", ["sh", "{x0:{x1}}"], "formats of numbers", "{x0:{x1}}"),
])  # fmt: skip
bad("CommandObjective", "command", [
    ("misspelt", ["sh", "{with}"], "placeholders {x0} to {x1} or {t}, {width}", "{with}"),
    ("beyond", ["sh", "{x2}"], "placeholders {x0} to {x1} or {t}, {width}", "{x2}"),
], names=("t", "width"))  # fmt: skip
bad("CommandObjective", "parse", callables())
sequence = "a sequence of at least one member"
bad("CommandObjective", "names", [
    ("one-text", "abc", sequence),
    ("number", 3, sequence),
    ("empty", (), sequence),
    ("numbers", (1, 2), "a sequence of 2 distinct strings"),
    ("repeated", ("a", "a"), "distinct", "'a' twice"),
    ("reserved", ("a", "slow"), "a column of result tables", "'slow'"),
])  # fmt: skip
bad("CommandObjective", "stdin", [
    ("number", 3, "a string"),
    ("bytes", b"{x0}", "a string"),
    ("list", ["{x0}"], "a string"),
    ("unknown", "{t}", "placeholders {x0}, {x1}, ...", "{t} in '{t}'"),
])  # fmt: skip
for name in ("inputs", "templates"):
    bad("CommandObjective", name, [
        ("one-path", "deck.k", "a sequence of paths"),
        ("none", None, "a sequence of paths"),
        ("number", 3, "a sequence of paths"),
        ("numbers", [3], "a path", "3"),
        ("missing", ["deck.k"], "that are there", "deck.k"),
    ])  # fmt: skip
bad("CommandObjective", "inputs", [
    ("repeated", [__file__, __file__], "distinct names", "'bad_input_external.py'"),
], named="inputs and templates")  # fmt: skip
bad("CommandObjective", "templates", [("folder", ["."], "text files that are there", "got")])
strings = "a dict of strings"
bad("CommandObjective", "env", [
    ("none", None, strings),
    ("text", "A=1", strings),
    ("list", ["A=1"], strings),
    ("number-inside", {"OMP_NUM_THREADS": 4}, strings, "('OMP_NUM_THREADS', 4)"),
    ("number-as-key", {1: "a"}, strings, "(1, 'a')"),
])  # fmt: skip
bad("CommandObjective", "timeout_s", reals(0, exclusive=True, optional=True))
bad("CommandObjective", "grace_s", reals(0))
bad("CommandObjective", "exit_codes", [
    ("number", 0, sequence),
    ("none", None, sequence),
    ("empty", (), sequence),
    ("text", "0", sequence),
    ("fraction", (0.5,), "an integer", "0.5"),
    ("texts", ("0",), "an integer", "'0'"),
])  # fmt: skip
bad("CommandObjective", "workdir", [
    ("number", 3, "a path"),
    ("bool", True, "a path"),
    ("list", ["runs"], "a path"),
])  # fmt: skip
bad(
    "CommandObjective", "workdir", [("none-to-keep", None, "say where folders are kept", "None")],
    keep=True,
)  # fmt: skip
bad("CommandObjective", "keep", [
    ("none", None, "True, False or 'failed'"),
    ("number", 1, "True, False or 'failed'"),
    ("unknown", "always", "True, False or 'failed'"),
], workdir="runs")  # fmt: skip


class Cluster:
    """Something with submit."""

    def submit(self, fn, *arguments):
        raise NotImplementedError


callee("JobExecutor", tc.JobExecutor, lambda: {"executor": Cluster()})
bad("JobExecutor", "executor", [
    ("none", None, "an object with submit"),
    ("number", 3, "an object with submit"),
    ("text", "slurm", "an object with submit"),
    ("function", print, "an object with submit", "print"),
    ("class", Cluster, "an object with submit", "Cluster"),
])  # fmt: skip
bad("JobExecutor", "poll_s", reals(0, exclusive=True))
