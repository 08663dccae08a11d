import { SquareTerminal } from 'lucide-react'
import { Popover } from 'radix-ui'
import type { ReactNode } from 'react'
import { quoted } from '../lib/quoted.ts'
import { IconButton } from './button.tsx'
import { CodeLine } from './copy.tsx'

export { quoted }

/** The same act by other means. `curl` is a path with a method and a body, which this makes into a line. */
export interface Commands {
  cli?: string
  sdk?: string
  curl?: { method?: string; path: string; json?: unknown }
}

function curlLine({ method = 'GET', path, json }: NonNullable<Commands['curl']>): string {
  const verb = method === 'GET' || (method === 'POST' && json !== undefined) ? '' : ` -X ${method}`
  const body = json === undefined ? '' : ` -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(json))}`
  const key = /^\/api\/(?:orgs|operator)(?:\/|$)/.test(path) ? 'ATOLL_OPERATOR_KEY' : 'ATOLL_API_KEY'
  return `curl${verb} -H "X-API-Key: $${key}"${body} ${quoted(location.origin + path)}`
}

/** The lines that do the same as a button of the page. */
export function CommandLines({ commands }: { commands: Commands }): ReactNode {
  const { cli, sdk, curl } = commands
  return (
    <div className="flex flex-col gap-2">
      {cli !== undefined && <CodeLine label="Copy the CLI command" text={cli} />}
      {curl !== undefined && <CodeLine label="Copy the curl command" text={curlLine(curl)} />}
      {sdk !== undefined && <CodeLine label="Copy the SDK call" text={sdk} />}
    </div>
  )
}

/** A small button beside an action that shows its command. */
export function CommandHint({
  commands,
  label = 'Show as a command',
}: {
  commands: Commands
  label?: string
}): ReactNode {
  return (
    <Popover.Root>
      <Popover.Trigger asChild>
        <IconButton label={label} icon={<SquareTerminal className="size-4" />} />
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Content
          aria-label={label}
          align="end"
          sideOffset={4}
          className="z-50 max-h-(--radix-popover-content-available-height) w-[min(36rem,calc(100vw-2rem))] overflow-y-auto rounded-md border bg-raised p-3 shadow-lg"
        >
          <CommandLines commands={commands} />
        </Popover.Content>
      </Popover.Portal>
    </Popover.Root>
  )
}
