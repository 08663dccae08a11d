import { useQuery } from '@tanstack/react-query'
import type { EgressInfo, SandboxInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { Badge, type Tone } from '../../ui/badge.tsx'
import { Button } from '../../ui/button.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { EgressDialog } from './egress-dialog.tsx'
import { EgressLog } from './egress-log.tsx'
import { textOfRule } from './egress-rules.ts'
import { egressQuery } from './queries.ts'

type Layer = EgressInfo['layers'][number]

const states: Record<EgressInfo['state'], { tone: Tone; text: string }> = {
  open: { tone: 'plain', text: 'Nothing holds it: it reaches everything public.' },
  proxied: {
    tone: 'accent',
    text: 'Its TCP and names pass the host, since it has secrets; the rest goes out as it is.',
  },
  confined: { tone: 'good', text: 'It reaches what each layer lets pass, and nothing else.' },
}

const sources: Record<Layer['source'], string> = {
  organisation: 'The organisation',
  image: 'Its image',
  store: 'Its secret stores',
  creation: 'The sandbox itself',
}

const modes: Record<Layer['mode'], string> = { none: 'nothing', list: 'what is allowed', all: 'everything' }

/** Rules that are drawn of a list, which may have a thousand. */
const rulesShownMax = 100

/** What a sandbox may reach, and what it has asked for outside. It is not woken. */
export function Egress({ info }: { info: SandboxInfo }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const mayWrite = useMay()('sandbox:write') && info.status !== 'stopped'
  const { data, error, refetch } = useQuery(egressQuery(info))
  const sandbox = quoted(nameOf(info))
  return (
    <>
      <Panel
        title="What it may reach"
        actions={
          <>
            <CommandHint
              commands={{
                cli: `atoll egress show ${sandbox}\natoll egress allow ${sandbox} example.com\natoll egress deny ${sandbox} example.com`,
                curl: { path: `/api/sandboxes/${nameOf(info)}/egress` },
                sdk: 'await sandbox.egress.get()',
              }}
            />
            {mayWrite && data !== undefined && (
              <Button size="small" onClick={() => setOpen(true)}>
                Change
              </Button>
            )}
          </>
        }
      >
        {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
        {data === undefined ? error === null && <Loading rows={2} /> : <Policy egress={data} />}
      </Panel>
      <EgressLog info={info} isOpen={data?.state === 'open'} />
      {isOpen && data !== undefined && <EgressDialog info={info} policy={data.policy} onClose={() => setOpen(false)} />}
    </>
  )
}

function Policy({ egress }: { egress: EgressInfo }): ReactNode {
  const { state, layers, secrets, stores, unavailable } = egress
  const { tone, text } = states[state]
  return (
    <div className="flex flex-col gap-4">
      <p className="flex flex-wrap items-center gap-2">
        <Badge tone={tone}>{state}</Badge> {text}
      </p>
      {unavailable !== undefined && <p className="text-warn">This host cannot hold egress: {unavailable}</p>}
      {layers.map((layer, index) => (
        <LayerRules key={`${layer.source} ${index}`} layer={layer} />
      ))}
      {stores.length > 0 && (
        <p>
          Secret stores: <bdi>{stores.join(', ')}</bdi>
        </p>
      )}
      {secrets.length > 0 && (
        <ul className="flex flex-col gap-1">
          {secrets.map(({ name, hosts, isUsed, why }) => (
            <li key={name} className="[overflow-wrap:anywhere]">
              <code className="font-mono text-[13px]">{name}</code>{' '}
              <span className="text-soft">
                {isUsed
                  ? `is sent to ${hosts.length === 0 ? 'what is allowed' : hosts.join(', ')}`
                  : `is not sent: ${why ?? ''}`}
              </span>
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}

function LayerRules({ layer }: { layer: Layer }): ReactNode {
  const { source, mode, logOnly, allow, deny } = layer
  return (
    <div className="flex flex-col gap-1">
      <h3 className="font-medium">
        {sources[source]} <span className="font-normal text-soft">lets {modes[mode]} pass</span>{' '}
        {logOnly && <Badge tone="warn">only records</Badge>}
      </h3>
      <RuleList label="Allowed" rules={allow} />
      <RuleList label="Denied" rules={deny} />
    </div>
  )
}

function RuleList({ label, rules }: { label: string; rules: Layer['allow'] }): ReactNode {
  if (rules.length === 0) return null
  const left = rules.length - rulesShownMax
  return (
    <div className="flex flex-wrap items-baseline gap-x-3 gap-y-1">
      <span className="w-16 text-[13px] text-soft">{label}</span>
      <ul className="flex min-w-0 flex-1 flex-wrap gap-1.5">
        {rules.slice(0, rulesShownMax).map((rule) => (
          <li key={rule.id} className="rounded bg-panel px-1.5 font-mono text-[13px] break-all">
            {textOfRule(rule)}
          </li>
        ))}
        {left > 0 && <li className="text-soft">and {left} more</li>}
      </ul>
    </div>
  )
}
