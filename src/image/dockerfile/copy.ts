import { defined } from '../../lib/defined.ts'
import { listIn } from './command.ts'
import { bounded, refused, variableInFrom } from './fault.ts'
import { Flags } from './flags.ts'
import type { CopyInstruction } from './instruction.ts'
import type { RawInstruction } from './lines.ts'
import { splitAtBlanks } from './words.ts'

type Source = CopyInstruction['sources'][number]

/** `COPY` and `ADD`. What is known only with the values of variables is checked where they are expanded. */
export function copyOf(raw: RawInstruction): CopyInstruction {
  const { line, name } = raw
  const type = name === 'ADD' ? 'add' : 'copy'
  const flags = new Flags(raw)
  for (const flag of ['checksum', 'keep-git-dir'])
    if (flags.text(flag) !== undefined)
      throw refused(line, `--${flag} is for remote sources, which ADD does not take here: fetch them in a RUN`)
  const from = flags.text('from')
  if (from === '') throw refused(line, '--from takes a stage or an image')
  if (from?.includes('$')) throw refused(line, variableInFrom('--from'))
  const sources = bounded(sourcesOf(raw), raw)
  const target = sources.pop()
  if (target === undefined || sources.length === 0) throw refused(line, `${name} takes a source and a target`)
  if ('heredoc' in target) throw refused(line, `the target of ${name} is a heredoc`)
  return {
    type,
    sources,
    target: target.word,
    excludes: flags.list('exclude'),
    keepsParents: flags.boolean('parents') ?? false,
    unpacks: flags.boolean('unpack') ?? type === 'add',
    ...defined({ from, owner: flags.text('chown'), mode: flags.text('chmod') }),
  }
}

/** Sources and target: a JSON list, words with the marks of heredocs, or words between blanks. Their quotes stay. */
function sourcesOf({ line, text, words, heredocs }: RawInstruction): Source[] {
  if (words !== undefined) {
    const left = [...heredocs]
    return words.map((marked) => ('mark' in marked ? { heredoc: left.shift()! } : marked))
  }
  return (listIn({ line, text }) ?? splitAtBlanks(text)).map((word) => ({ word }))
}
