import { defined } from '../../lib/defined.ts'
import { quoted, refused } from './fault.ts'
import { Flags } from './flags.ts'
import type { ArgInstruction, Dockerfile, Instruction, Stage } from './instruction.ts'
import { type RawInstruction, readInstructions } from './lines.ts'
import type { Written } from './operations.ts'
import { argOf, parseInstruction } from './parse.ts'
import { jsonWords, splitAtBlanks } from './words.ts'

/** Each may come to variables of its own. */
const stagesMax = 100

/**
 * The stages of a Dockerfile. Pure, and at a cost that grows with the text alone. Throws `invalid_request` with the line of the first fault that
 * shows without the values of variables; `stagesNeeded` and `StageEvaluation` find the others.
 */
export function parseDockerfile(text: string): Dockerfile {
  const { instructions, escape, syntax } = readInstructions(text)
  const globalArgs: (ArgInstruction & Written)[] = []
  const warnings: string[] = []
  const stages: (Stage & { instructions: Instruction[] })[] = []
  for (const raw of instructions) {
    const stage = stages.at(-1)
    if (raw.name === 'FROM') {
      const next = stageOf(raw, stages.length)
      if (next.name !== undefined && stages.some(({ name }) => name === next.name))
        throw refused(raw.line, `a second stage has the name ${quoted(next.name)}`)
      if (stages.length === stagesMax) throw refused(raw.line, `more than ${stagesMax} stages`)
      stages.push(next)
    } else if (stage !== undefined) {
      const instruction = parseInstruction(raw, escape)
      if (instruction !== undefined) stage.instructions.push(instruction)
      if (isBrokenList(raw)) warnings.push(`line ${raw.line}: the list is no JSON, so ${raw.name} takes it as text`)
    } else if (raw.name === 'ARG') {
      void new Flags(raw)
      globalArgs.push({ line: raw.line, summary: raw.summary, ...argOf(raw, escape) })
    } else {
      // A name that is no instruction is told as such.
      parseInstruction(raw, escape)
      throw refused(raw.line, 'the first instruction is FROM; only ARG may stand before it')
    }
  }
  const [first, ...others] = stages
  if (first === undefined) throw refused(1, 'the Dockerfile has no FROM')
  // Other names are programs that read another language.
  const isOther =
    syntax !== undefined && !/^(?:docker\.io\/)?docker\/dockerfile(?:-upstream)?(?:[:@]|$)/.test(syntax.value)
  if (isOther) warnings.unshift(`line ${syntax.line}: # syntax=${quoted(syntax.value)} has no effect`)
  return { globalArgs, stages: [first, ...others], escape, warnings }
}

function stageOf(raw: RawInstruction, index: number): Stage & { instructions: Instruction[] } {
  const { line, text } = raw
  const platform = new Flags(raw).text('platform')
  const [image, as, written, ...more] = splitAtBlanks(text)
  if (image === undefined) throw refused(line, 'FROM takes an image')
  if (as !== undefined && (as.toUpperCase() !== 'AS' || written === undefined || more.length > 0))
    throw refused(line, 'FROM takes an image, and AS with a name')
  const name = written?.toLowerCase()
  if (name !== undefined && !/^[a-z][a-z0-9._-]{0,127}$/.test(name))
    throw refused(line, `${quoted(name)} is no name of a stage: a letter, then letters, digits, ".", "_" and "-"`)
  if (name === 'scratch') throw refused(line, 'scratch is the empty image and no name of a stage')
  return {
    index,
    line,
    image,
    instructions: [],
    ...defined({ platform, name }),
  }
}

/** Text that is meant as a list of words, with quotes that JSON does not know, or a comma too many. */
function isBrokenList({ name, text }: RawInstruction): boolean {
  const takesBoth = ['RUN', 'CMD', 'ENTRYPOINT', 'COPY', 'ADD', 'VOLUME'].includes(name)
  return (
    takesBoth && /^\[\s*["']/.test(text) && text.endsWith(']') && text.includes(',') && jsonWords(text) === undefined
  )
}
