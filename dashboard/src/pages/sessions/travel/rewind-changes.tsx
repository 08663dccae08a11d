import type { RewindOptions, RewindPreview, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { visible } from '../../../lib/visible.ts'
import { formatCount, formatUsd, shorten } from '../../../lib/format.ts'
import { Facts } from '../../../ui/page.tsx'

const commandsMax = 8
const commandCharactersMax = 160
const promptCharactersMax = 600

const processesWords = {
  restored: 'Those of that time run again as they were.',
  ended: 'All end: the checkpoint has no memory.',
  kept: 'Those of the present run on.',
} as const

interface RewindChangesProps {
  preview: RewindPreview
  what: NonNullable<RewindOptions['what']>
  turn: TurnInfo
  turns: readonly TurnInfo[]
}

/** What a rewind would change and leave behind. */
export function RewindChanges({ preview, what, turn, turns }: RewindChangesProps): ReactNode {
  const { files, turnsLeft, tokensLeft, queuedMessages, interrupts, processes, processesEnded, restoredPrompt } =
    preview
  const isElsewhere = turn.checkpoint !== null && preview.checkpointId !== turn.checkpoint.id
  const facts: (readonly [string, ReactNode])[] = [
    ['Leaves', leftOf(turnsLeft, tokensLeft, turns)],
    ...(interrupts ? [['Interrupts', 'The turn that runs now.'] as const] : []),
    ...(queuedMessages > 0
      ? [
          [
            'Cancels',
            queuedMessages === 1 ? 'The message that waits.' : `${queuedMessages} messages that wait.`,
          ] as const,
        ]
      : []),
    ['Processes', processesWords[processes]],
    ...(processesEnded !== null && processesEnded.length > 0
      ? [['Ends', <EndedProcesses key="ended" commands={processesEnded} />] as const]
      : []),
    ...(restoredPrompt === null
      ? []
      : [
          [
            'Gives back',
            <span
              key="prompt"
              className="whitespace-pre-wrap"
            >{`“${shorten(restoredPrompt, promptCharactersMax)}”, to be edited and sent again`}</span>,
          ] as const,
        ]),
  ]
  return (
    <div className="flex flex-col gap-3">
      {isElsewhere && (
        <p className="rounded-md bg-warn-faint px-3 py-2 text-warn">
          No checkpoint of this very point is kept. The session goes to that after event {preview.toEvent}.
        </p>
      )}
      <Facts items={facts} />
      {what !== 'conversation' &&
        (files === null ? (
          <p className="text-soft">Which files change is not known: their disks cannot be read, or none do.</p>
        ) : files.files.length === 0 ? (
          <p className="text-soft">No file of the working folder changes. Ignored files go back too.</p>
        ) : (
          <ComparisonView
            key={preview.checkpointId}
            className="max-h-72"
            label="Files that would change"
            files={files.files}
            isPartial={files.isCut}
          />
        ))}
    </div>
  )
}

function leftOf(turnsLeft: readonly string[], tokensLeft: number, turns: readonly TurnInfo[]): string {
  if (turnsLeft.length === 0) return 'No turn.'
  const left = new Set(turnsLeft)
  const costs = turns.filter(({ messageId }) => left.has(messageId)).map(({ usage }) => usage.totalCostUsd)
  const known = costs.filter((cost) => cost !== undefined)
  const cost = known.length < turnsLeft.length ? '' : `, ${formatUsd(known.reduce((sum, one) => sum + one, 0))}`
  return `${turnsLeft.length} ${turnsLeft.length === 1 ? 'turn' : 'turns'} with ${formatCount(tokensLeft)} tokens${cost}. They stay in the timeline.`
}

function EndedProcesses({ commands }: { commands: readonly string[] }): ReactNode {
  return (
    <ul>
      {commands.slice(0, commandsMax).map((command, index) => (
        <li
          key={`${index} ${command}`}
          className="truncate font-mono text-[13px]"
          title={visible(command.slice(0, 1000))}
        >
          {visible(shorten(command, commandCharactersMax))}
        </li>
      ))}
      {commands.length > commandsMax && <li className="text-soft">and {commands.length - commandsMax} more</li>}
    </ul>
  )
}
