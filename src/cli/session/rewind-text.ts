import type { RewindPreview } from '../../../sdk/src/index.ts'
import { cut, oneLine } from '../output.ts'
import { statText } from '../patch-output.ts'
import { tokenText } from '../units.ts'

interface Drawing {
  widthMax?: number
  hasColors?: boolean
}

/** Of those that would end. */
const commandsMax = 5
const labelCells = 13

/** What becomes of processes. */
export const processesWords = {
  restored: 'those of that time run again',
  ended: 'all end',
  kept: 'those of the present run on',
} as const

/** What a rewind would change, for a person. What stands in prompts, paths and commands does not steer the terminal. */
export function previewText(preview: RewindPreview, { widthMax = Infinity, hasColors = false }: Drawing = {}): string {
  const { checkpointId, toEvent, turnsLeft, tokensLeft, queuedMessages, interrupts, restoredPrompt, files } = preview
  const turns = `${turnsLeft.length} turn${turnsLeft.length === 1 ? '' : 's'}`
  const fields: [label: string, text: string | undefined][] = [
    ['goes to', `event ${toEvent}, ${oneLine(checkpointId)}`],
    ['leaves', turnsLeft.length === 0 ? 'no turn' : `${turns}, ${tokenText(tokensLeft)}`],
    ['interrupts', interrupts ? 'the turn that runs' : undefined],
    [
      'takes back',
      queuedMessages === 0
        ? undefined
        : queuedMessages === 1
          ? 'the message that waits'
          : `${queuedMessages} messages that wait`,
    ],
    ['processes', processesWords[preview.processes]],
    ['ends', endedOf(preview)],
    ['prompt', restoredPrompt === null ? undefined : oneLine(restoredPrompt)],
    ['files', filesOf(preview)],
  ]
  const lines = fields.flatMap(([label, text]) =>
    text === undefined ? [] : [cut(`${label.padEnd(labelCells)}${text}`, widthMax)],
  )
  const stat = files === null ? '' : statText(files, { widthMax, hasColors })
  return [...lines, ...(stat === '' ? [] : [stat])].join('\n')
}

/** Undefined where they are listed. */
function filesOf({ files, processes }: RewindPreview): string | undefined {
  if (files === null) return processes === 'kept' ? 'as they are' : 'not known'
  return files.files.length === 0 ? 'as they are' : undefined
}

function endedOf({ processesEnded }: RewindPreview): string | undefined {
  if (processesEnded === null || processesEnded.length === 0) return undefined
  const shown = processesEnded.slice(0, commandsMax).map((command) => oneLine(command))
  const more = processesEnded.length - shown.length
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join(', ')
}
