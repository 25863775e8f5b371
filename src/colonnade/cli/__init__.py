"""The ``colonnade`` command, one file per command.

Only what a command needs is imported when it runs, so that ``colonnade --help`` answers at once. Data goes to stdout,
talk to stderr. Exit codes are listed in docs/ref-exit-codes.md.
"""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

__all__ = ["COMMANDS", "main"]

# name: one line for the overview; the module of the same name in this package defines the command.
COMMANDS = {
    "demo": "Show a method on data at hand, beside what it must be better than.",
    "init": "Make a party's home: key, certificate and a commented party.toml.",
    "pair": "Exchange certificates with a partner, and renew your own.",
    "methods": "List the methods and when to choose which.",
    "inspect": "Look at a table: each column, how it is encoded, and what looks wrong.",
    "groups": "Propose feature groups for a run of prada, to rename and edit.",
    "plan": "Rehearse a run: how long it will take, and what each party will send.",
    "align": "Find the rows that parties share, or only how many, before there is a run.",
    "run": "Take part in a run, or carry it out with all its parties on this machine.",
    "doctor": "Check a home, and the connection to a partner, before there is a run.",
    "status": "Show the runs of a home: how far they are, and when each partner was last heard.",
    "predict": "Score new rows with a finished run.",
    "report": "Write the HTML report of a finished run again.",
    "audit": "Check ledgers and show what crossed.",
    "bench": "Measure the speed of encrypted arithmetic on this machine.",
}

_HELP = """\
Usage: colonnade COMMAND [OPTIONS]

Vertical federated learning: every organisation keeps its columns, together they carry one model.

Commands:
{commands}

Options:
  --help       Show this, or with a command what it takes.
  --version    Show the version.
  --traceback  Show where an error came from, not only its message.

Start with:
  colonnade demo
  colonnade run --help
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    shows_traceback = "--traceback" in words
    words = [word for word in words if word != "--traceback"]
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(_HELP.format(commands="\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())))
        sys.exit(0)
    if words[0] in ("--version", "version"):
        from colonnade import __version__

        sys.stdout.write(f"colonnade {__version__}\n")
        sys.exit(0)
    # Loading torch makes a million objects that all stay; looking through them again and again takes a tenth of it.
    gc.set_threshold(100_000, 50, 50)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(_run(words, shows_traceback))


def _run(words: list[str], shows_traceback: bool) -> int:
    import traceback
    from importlib import import_module

    from colonnade.errors import ColonnadeError, UsageError, did_you_mean, remedy
    from colonnade.text import spelt_out

    try:
        if words[0].startswith("-"):
            raise UsageError(f"There is no option '{words[0]}' before the command. Write colonnade COMMAND [OPTIONS].")
        if words[0] not in COMMANDS:
            raise UsageError(f"There is no command '{words[0]}'. {did_you_mean(words[0], COMMANDS)}")
        # The name is one of the keys above, never the user's own text.
        app = import_module(f"colonnade.cli.{words[0]}").app
        code = app(words[1:], prog_name=f"colonnade {words[0]}", standalone_mode=False)
        if code == 130:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except ColonnadeError as error:
        if shows_traceback:
            sys.stderr.write(spelt_out(traceback.format_exc(), has_lines=True))
        # A partner may have chosen some of its words. Stopping on the user's own wish is no error.
        said = spelt_out(str(error))
        sys.stderr.write(f"{said}\n" if error.exit_code == 130 else f"Error: {said}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130
    except OSError as error:
        if shows_traceback:
            sys.stderr.write(spelt_out(traceback.format_exc(), has_lines=True))
        where = "A file or folder" if error.filename is None else spelt_out(str(error.filename))
        why = error.strerror or type(error).__name__
        what_to_do = remedy(error, "Check the path, its permissions and the free space")
        sys.stderr.write(f"Error: {where} cannot be used ({why}). {what_to_do}.\n")
        return UsageError.exit_code
    except Exception as error:
        if shows_traceback:
            sys.stderr.write(spelt_out(traceback.format_exc(), has_lines=True))
        if hasattr(error, "format_message"):
            sys.stderr.write(f"Error: {spelt_out(_usage_message(error, words[0]))}\n")
            return UsageError.exit_code
        sys.stderr.write(
            f"Error: an unforeseen {type(error).__name__} stopped the command. This is a fault in colonnade: run it "
            "again with --traceback and report what it prints.\n"
        )
        return 1


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Show our own warnings as a line; those of libraries are for developers."""
    if category.__module__.startswith("colonnade"):
        from colonnade.text import spelt_out

        sys.stderr.write(f"Warning: {spelt_out(str(message))}\n")


def _usage_message(error: Any, command: str) -> str:
    """Return what click has to say about the words on the command line, in our own form."""
    from colonnade.errors import did_you_mean

    near = getattr(error, "possibilities", None)
    said = f"There is no option '{error.option_name}'" if near else str(error.format_message()).rstrip(".")
    hint = did_you_mean(error.option_name, near) + " " if near else ""
    return f"{said}. {hint}See 'colonnade {command} --help'."
