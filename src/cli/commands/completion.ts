import { Argument, type Command } from 'commander'
import { write } from '../output.ts'

export function addCompletion(program: Command): void {
  program
    .command('completion')
    .description('print the completion of a shell, to be sourced')
    .addArgument(new Argument('<shell>').choices(['bash', 'zsh', 'fish']))
    .action(async (shell: 'bash' | 'zsh' | 'fish') => {
      const words = wordsOf(program)
      await write(shell === 'fish' ? fishScript(words) : bashScript(words, shell === 'zsh'))
    })
}

/** The words that may follow each command, `atoll` itself among them. */
type Words = Map<string, string[]>

function wordsOf(program: Command): Words {
  const words: Words = new Map()
  const globals = program.options.flatMap(({ long }) => (long ? [long] : []))
  const collect = (command: Command, path: string) => {
    const names = command.commands.map((sub) => sub.name())
    const options = command.options.flatMap(({ long }) => (long ? [long] : []))
    words.set(path, [...new Set([...names, ...options, ...globals, '--help'])])
    for (const sub of command.commands) collect(sub, `${path} ${sub.name()}`)
  }
  collect(program, 'atoll')
  return words
}

/** Commands that have commands of their own. */
function groupsOf(words: Words): string[] {
  const groups = [...words.keys()].map((path) => path.split(' ')).filter(({ length }) => length > 2)
  return [...new Set(groups.map(([, name = '']) => name))]
}

function bashScript(words: Words, isZsh: boolean): string {
  const cases = [...words].map(([path, all]) => `    '${path}') words='${all.join(' ')}' ;;`)
  return `${isZsh ? 'autoload -U +X bashcompinit && bashcompinit\n' : ''}_atoll() {
  local path=atoll words='' word
  case "\${COMP_WORDS[1]:-}" in
    ${groupsOf(words).join('|')}) path="atoll \${COMP_WORDS[1]}"; [ "$COMP_CWORD" -gt 2 ] && path="$path \${COMP_WORDS[2]}" ;;
    *) [ "$COMP_CWORD" -gt 1 ] && path="atoll \${COMP_WORDS[1]}" ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && path=atoll
  case "$path" in
${cases.join('\n')}
  esac
  COMPREPLY=()
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -F _atoll atoll
`
}

function fishScript(words: Words): string {
  const lines = [...words].flatMap(([path, all]) => {
    const names = path.split(' ').slice(1)
    const [name = '', sub] = names
    const seen = names.map((one) => `__fish_seen_subcommand_from ${one}`).join('; and ')
    const subs = words.get(`atoll ${name}`)?.filter((word) => !word.startsWith('-')) ?? []
    const isBeforeSub = subs.length > 0 && sub === undefined
    const only = isBeforeSub ? `${seen}; and not __fish_seen_subcommand_from ${subs.join(' ')}` : seen
    const condition = names.length === 0 ? '__fish_use_subcommand' : only
    return all.map((word) =>
      word.startsWith('--')
        ? `complete -c atoll -n '${condition}' -l ${word.slice(2)}`
        : `complete -c atoll -n '${condition}' -f -a ${word}`,
    )
  })
  return `${lines.join('\n')}\n`
}
