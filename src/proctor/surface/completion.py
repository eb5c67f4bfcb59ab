"""Shell completion scripts that contain every command, option and choice, so that completing starts no Proctor."""

from collections.abc import Callable, Iterator, Sequence
from shlex import quote

from proctor.surface.contract import CommandContract

Commands = Sequence[CommandContract]

_BASH = """\
# Completion of `proctor` for bash: eval "$(proctor completion bash)"
_proctor() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words="" options="" valued=""
    local typed="${{COMP_WORDS[*]:1:COMP_CWORD-1}} "
    case "$typed" in
{cases}
    esac
    COMPREPLY=()
    case " $valued " in *" $before "*) return ;; esac
    case "$current" in -*) words="$options" ;; esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _proctor proctor
"""

_ZSH = """\
#compdef proctor
# Completion of `proctor` for zsh: source <(proctor completion zsh)
_proctor() {{
    local words_="" options="" valued="" typed="${{(j: :)words[2,CURRENT-1]}} "
    case "$typed" in
{cases}
    esac
    if [[ " $valued " == *" ${{words[CURRENT-1]}} "* ]]; then _files
    elif [[ ${{words[CURRENT]}} == -* ]]; then compadd -- ${{=options}}
    elif [[ -n $words_ ]]; then compadd -- ${{=words_}}
    else _files
    fi
}}
compdef _proctor proctor
"""

_FISH = """\
# Completion of `proctor` for fish: proctor completion fish | source
function __proctor_typed
    set -l typed (commandline -opc)
    string match -q -- "$argv *" "$typed[2..] "
end
function __proctor_typed_only
    set -l typed (commandline -opc)
    test "$argv" = "$typed[2..]"
end
"""


def _words(commands: Commands) -> Iterator[tuple[str, list[str]]]:
    """Yield the words that may follow each prefix: commands and groups first, then the commands of each group."""
    yield "", list(dict.fromkeys(command.name.partition(" ")[0] for command in commands))
    for group in dict.fromkeys(command.name.partition(" ")[0] for command in commands if " " in command.name):
        yield group, [each.name.partition(" ")[2] for each in commands if each.name.startswith(f"{group} ")]


def _options(command: CommandContract) -> list[str]:
    return [each.names[0] for each in command.arguments if not each.is_positional] + ["--help"]


def _valued(command: CommandContract) -> list[str]:
    return [each.names[0] for each in command.arguments if not each.is_positional and each.value is not None]


def _choices(command: CommandContract) -> list[str]:
    return [choice for each in command.arguments if each.is_positional for choice in each.choices]


def _cases(commands: Commands, *, words: str) -> str:
    """Return the cases of a shell's `case` statement: commands first, then groups. The first match counts."""
    lines = []
    for command in commands:
        sets = ((words, _choices(command)), ("options", _options(command)), ("valued", _valued(command)))
        assignments = " ".join(f"{name}={quote(' '.join(values))}" for name, values in sets)
        lines.append(f'        "{command.name} "*) {assignments} ;;')
    for typed, values in _words(commands):
        options = "--help" if typed else "--help --version"
        lines.append(f'        "{typed} ") {words}={quote(" ".join(values))} options={quote(options)} ;;')
    return "\n".join(lines)


def _bash(commands: Commands) -> str:
    return _BASH.format(cases=_cases(commands, words="words"))


def _zsh(commands: Commands) -> str:
    return _ZSH.format(cases=_cases(commands, words="words_"))


def _fish(commands: Commands) -> str:
    summaries = {command.name: command.summary for command in commands}
    lines = []
    for typed, values in _words(commands):
        for value in values:
            means = summaries.get(f"{typed} {value}".strip(), "")
            lines.append(_fish_line(f"__proctor_typed_only {typed}".strip(), f"-f -a {value}", means))
    for command in commands:
        condition = f"__proctor_typed {command.name}"
        lines += [_fish_line(condition, f"-f -a {choice}", "") for choice in _choices(command)]
        for each in command.arguments:
            if not each.is_positional:
                option = f"-l {each.names[0].removeprefix('--')}{' -r' if each.value else ''}"
                lines.append(_fish_line(condition, option, each.help))
    return _FISH + "".join(lines)


def _fish_line(condition: str, what: str, means: str) -> str:
    described = f" -d {quote(means)}" if means else ""
    return f"complete -c proctor -n {quote(condition)} {what}{described}\n"


SHELLS: dict[str, Callable[[Commands], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
