import type { HostInfo } from 'atoll-sdk'
import { CircleAlert, CircleCheck, CircleMinus } from 'lucide-react'
import type { ReactNode } from 'react'
import { CodeLine } from '../../../ui/copy.tsx'
import { cx } from '../../../ui/cx.ts'
import { Panel } from '../../../ui/page.tsx'
import { TimeAgo } from '../../../ui/time.tsx'

type Check = HostInfo['checks'][number]

const groups = [
  {
    status: 'fails',
    title: 'Fails',
    note: 'What depends on it does not work until it is mended.',
    icon: CircleAlert,
    look: 'text-bad',
  },
  {
    status: 'missing',
    title: 'Missing',
    note: 'Not installed, or not offered by this machine. The rest works without it.',
    icon: CircleMinus,
    look: 'text-warn',
  },
  { status: 'works', title: 'Works', note: '', icon: CircleCheck, look: 'text-good' },
] as const

/** The checks by their outcome, the faults first, each with the advice of the server. */
export function Checks({ checks, checkedAt }: { checks: readonly Check[]; checkedAt: string }): ReactNode {
  return (
    <Panel
      title="Checks"
      actions={
        <span className="text-[13px] text-soft">
          checked <TimeAgo time={checkedAt} />
        </span>
      }
    >
      <div className="flex flex-col gap-5">
        {groups.map(({ status, title, note, icon: Icon, look }) => {
          const found = checks.filter((check) => check.status === status)
          if (found.length === 0) return null
          return (
            <section key={status} aria-label={title}>
              <h3 className={cx('flex items-center gap-1.5 font-medium', look)}>
                <Icon aria-hidden="true" className="size-4" /> {title} ({found.length})
              </h3>
              {note !== '' && <p className="text-[13px] text-soft">{note}</p>}
              <dl className="mt-1.5 grid sm:grid-cols-[11rem_minmax(0,1fr)]">
                {found.map(({ name, detail }, index) => (
                  <div key={`${name} ${index}`} className="contents">
                    <dt className="pt-1.5 pr-4 font-medium sm:border-t">{name}</dt>
                    <dd className="min-w-0 border-b pb-1.5 break-words text-soft sm:border-t sm:border-b-0 sm:pt-1.5">
                      {detail}
                    </dd>
                  </div>
                ))}
              </dl>
            </section>
          )
        })}
        <div className="flex flex-col gap-2">
          <p className="text-[13px] text-soft">
            The server keeps what it found for ten minutes, or until it is told to check again. These checks start no
            sandbox. On the machine of the server, the doctor also starts, forks and wakes one, saves memory with CRIU,
            and tries disk and network:
          </p>
          <CodeLine text="npm run doctor" label="Copy the command" />
          <p className="text-[13px] text-soft">
            What to do about faults:{' '}
            <a href="/docs/operate/troubleshooting" className="text-accent underline">
              troubleshooting
            </a>
            ,{' '}
            <a href="/docs/operate/operations" className="text-accent underline">
              operations
            </a>
          </p>
        </div>
      </div>
    </Panel>
  )
}
