import { sql, type Kysely } from 'kysely'
import { defined } from '../lib/defined.ts'
import type { SessionStore, TurnFacts, TurnTotals } from '../session/store.ts'
import type { Counters } from '../session/turn.ts'
import { anyOf } from './rows.ts'
import type { Database } from './schema.ts'

/** Characters of a message that a timeline shows. */
const messageLengthMax = 1000

interface FactsRow {
  messageId: string
  message: string | null
  usageAfter: Counters | null
  checkpointId: string | null
  afterEvent: number
  kind: NonNullable<TurnFacts['point']>['kind']
  sizeBytes: number
  durationMs: number
  createdAt: Date
}

/** Reads what turns have cost, and what is kept of them. */
export function sessionTimeline(db: Kysely<Database>) {
  return {
    async turnFacts(sessionId, messageIds) {
      const { rows } = await sql<FactsRow>`
        select turn.message_id, left(message.content, ${messageLengthMax}) as message, next.usage_before as usage_after,
          point.checkpoint_id, point.after_event, point.kind, point.size_bytes, point.duration_ms, point.created_at
        from session_turns turn
        left join messages message on message.id = turn.message_id and message.session_id = turn.session_id
        left join lateral (
          select usage_before from session_turns
          where session_id = turn.session_id and position > turn.position
          order by position limit 1
        ) next on true
        left join lateral (
          select * from session_points
          where session_id = turn.session_id and turn_id = turn.message_id and origin = 'turn'
          order by position desc limit 1
        ) point on true
        where turn.session_id = ${sessionId} and turn.message_id = ${anyOf(messageIds)}`.execute(db)
      return new Map(rows.map((row) => [row.messageId, factsOf(row)]))
    },

    async turnTotals(sessionId) {
      const { rows } = await sql<TurnTotals>`
        with usage as (
          select turn.ended_at, turn.started_at, turn.usage_before as before,
            coalesce(lead(turn.usage_before) over (order by turn.position), jsonb_strip_nulls(jsonb_build_object(
              'inputTokens', session.input_tokens, 'outputTokens', session.output_tokens, 'costNanoUsd', session.cost_nano_usd
            ))) as after
          from session_turns turn join sessions session on session.id = turn.session_id
          where turn.session_id = ${sessionId}
        ), spent as (
          select extract(epoch from ended_at - started_at) * 1000 as ms,
            (after ->> 'inputTokens')::bigint - (before ->> 'inputTokens')::bigint as input,
            (after ->> 'outputTokens')::bigint - (before ->> 'outputTokens')::bigint as output,
            (after ->> 'costNanoUsd')::bigint - (before ->> 'costNanoUsd')::bigint as cost
          from usage where ended_at is not null
        )
        select count(*) as turns, coalesce(sum(ms), 0)::bigint as duration_ms, coalesce(sum(input), 0)::bigint as input_tokens,
          coalesce(sum(output), 0)::bigint as output_tokens, count(cost) as priced_turns,
          coalesce(sum(cost), 0)::bigint as cost_nano_usd
        from spent`.execute(db)
      const [totals] = rows
      if (totals === undefined) throw new Error('a sum has no row')
      return totals
    },
  } satisfies Partial<SessionStore>
}

function factsOf({ messageId: _id, message, usageAfter, checkpointId, ...point }: FactsRow): TurnFacts {
  return {
    message: message ?? '',
    ...defined({
      usageAfter: usageAfter ?? undefined,
      point: checkpointId === null ? undefined : { checkpointId, ...point },
    }),
  }
}
