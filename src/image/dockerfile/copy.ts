import { bounded, quoted, refused, variableInFrom } from './fault.ts'
import { Flags } from './flags.ts'
import type { CopyInstruction } from './instruction.ts'
import type { RawInstruction } from './lines.ts'
import { jsonWords, splitAtBlanks } from './words.ts'

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
  const owner = flags.text('chown')
  const mode = flags.text('chmod')
  return {
    type,
    sources,
    target: target.word,
    excludes: flags.list('exclude'),
    keepsParents: flags.boolean('parents') ?? false,
    unpacks: flags.boolean('unpack') ?? type === 'add',
    ...(from === undefined ? {} : { from }),
    ...(owner === undefined ? {} : { owner }),
    ...(mode === undefined ? {} : { mode }),
  }
}

/** Sources and target: a JSON list, words with the marks of heredocs, or words between blanks. Their quotes stay. */
function sourcesOf({ line, text, words, heredocs }: RawInstruction): Source[] {
  if (words !== undefined) {
    const left = [...heredocs]
    return words.map((marked) => ('mark' in marked ? { heredoc: left.shift()! } : marked))
  }
  const list = jsonWords(text)
  if (list === null) throw refused(line, `${quoted(text)} has something else than text in its list`)
  return (list ?? splitAtBlanks(text)).map((word) => ({ word }))
}
