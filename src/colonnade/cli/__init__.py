"""The ``colonnade`` command.

Only what a command needs is imported when it runs, so that ``colonnade --help`` answers at once. Data goes to stdout, talk to
stderr. Exit codes are listed in docs/ref-exit-codes.md.
"""

from __future__ import annotations

import sys

__all__ = ["COMMANDS", "main"]

# name: one line for the overview; the module of the same name in this package defines the command.
COMMANDS = {
    "demo": "Train a two-party model on bundled data and write a report.",
    "methods": "List the methods and when to choose which.",
    "run": "Carry out a run.toml with all its parties on this machine.",
    "predict": "Score new rows with a finished run.",
    "report": "Write the HTML report of a finished run again.",
    "audit": "Check ledgers and show what crossed.",
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
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(_HELP.format(commands="\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())))
        sys.exit(0)
    if words[0] in ("--version", "version"):
        from colonnade import __version__

        sys.stdout.write(f"colonnade {__version__}\n")
        sys.exit(0)
    sys.exit(_run(words, shows_traceback))


def _run(words: list[str], shows_traceback: bool) -> int:
    from importlib import import_module

    from colonnade.errors import ColonnadeError, UsageError, did_you_mean

    try:
        if words[0] not in COMMANDS:
            raise UsageError(f"There is no command '{words[0]}'. {did_you_mean(words[0], COMMANDS)}")
        # The name is one of the keys above, never the user's own text.
        import_module(f"colonnade.cli.{words[0]}").app(words[1:], prog_name=f"colonnade {words[0]}")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except ColonnadeError as error:
        if shows_traceback:
            raise
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. Run the same command again to go on from the last checkpoint.\n")
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        if shows_traceback:
            raise
        sys.stderr.write(
            f"Error: an unforeseen {type(error).__name__} stopped the command. This is a fault in colonnade: run it "
            "again with --traceback and report what it prints.\n"
        )
        return 1
    return 0
