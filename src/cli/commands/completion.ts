import { Argument, type Command } from 'commander'
import { examples } from '../options.ts'
import { write } from '../output.ts'

type Shell = keyof typeof scripts

export function addCompletion(program: Command): void {
  program
    .command('completion')
    .description('print the completion of a shell, to be sourced: commands, flags, and what the server has')
    .addHelpText(
      'after',
      examples(
        'source <(atoll completion bash)',
        'source <(atoll completion zsh)',
        'atoll completion fish >~/.config/fish/completions/atoll.fish',
      ),
    )
    .addArgument(new Argument('<shell>').choices(Object.keys(scripts)))
    .action(async (shell: Shell) => await write(scripts[shell]))
}

// Each asks "atoll complete", which knows the flags, the commands and the server, for lines of a word and its meaning.
const scripts = {
  bash: `_atoll() {
  local value meaning
  COMPREPLY=()
  while IFS=$'\\t' read -r value meaning; do
    case $value in
      :files) compopt -o default 2>/dev/null ;;
      :open) compopt -o nospace 2>/dev/null ;;
      *) COMPREPLY+=("$value") ;;
    esac
  done < <("$1" complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
}
complete -F _atoll atoll
`,
  zsh: `#compdef atoll
_atoll() {
  local value meaning files
  local -a found open
  while IFS=$'\\t' read -r value meaning; do
    case $value in
      :files) files=1 ;;
      :open) open=(-S '') ;;
      *) found+=("\${value//:/\\\\:}\${meaning:+:$meaning}") ;;
    esac
  done < <("\${(Q)words[1]}" complete -- "\${(@Q)words[2,CURRENT]}" 2>/dev/null </dev/null)
  (( \${#found} )) && _describe -V atoll found "\${open[@]}"
  [[ -n $files ]] && _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [[ $funcstack[1] = _atoll ]]; then _atoll "$@"; else compdef _atoll atoll; fi
`,
  fish: `function __atoll_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] complete -- $words[2..] "$current" 2>/dev/null </dev/null)
    switch $line
      case :files
        __fish_complete_path "$current"
      case :open
      case '*'
        printf '%s\\n' $line
    end
  end
end
complete -c atoll -f -a '(__atoll_complete)'
`,
}
