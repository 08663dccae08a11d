import type { z } from 'zod'
import { sandboxTrees as treeWire, sessionTimeline as wire } from '../../protocol/http/index.ts'
import { defined } from '../../lib/defined.ts'
import type {
  CompareSession,
  ComparedWork,
  ForkEstimate,
  SessionComparison,
  TimelineTurn,
  TurnUsage,
} from '../../session/index.ts'
import { answerComparison } from '../server/patch-answer.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const turnsDefault = 20

const route = routesOf('Sessions', 'session')

export const sessionTimelineRoutes = [
  route('GET', '/v1/sessions/:sessionId/timeline', {
    id: 'getTimeline',
    summary: 'Read the turns of a session, newest first',
    description:
      'Each with its checkpoint, what it has changed and used, and the sessions that were forked at its end.',
    token: 'read',
    query: wire.timelineQuery,
    answers: { 200: { description: 'One page', body: wire.timeline } },
    async answer({ orgId, params, query, request, deps }) {
      const { user_id: userId, limit = turnsDefault, cursor, branch } = query
      const { caller } = request
      const isOwnersOnly = userId !== undefined || caller?.sessionId !== undefined
      const asked = { limit, isOwnersOnly, ...defined({ userId, cursor, branch, reach: caller?.reach }) }
      const {
        turns,
        nextCursor = null,
        undoCheckpointId = null,
      } = await deps.sessions.timeline.page(orgId, params.sessionId, asked)
      return { turns: turns.map(turnBody), nextCursor, undoCheckpointId } satisfies z.output<typeof wire.timeline>
    },
  }),
  route('GET', '/v1/sessions/:sessionId/diff', {
    id: 'compareSession',
    audited: true,
    summary: 'Compare a session with another one, or with an earlier state',
    description:
      'What has to change in the working folder of the other side for it to become that of the session, as it is now. Nothing is woken. Of a ' +
      'session that has ended its newest checkpoint counts. As git sees files: what a `.gitignore` names does not count. With ' +
      '`Accept: text/x-diff` the answer is a unified diff of at most 64 MiB, which `git apply` takes.',
    query: wire.compareSessionQuery,
    answers: {
      200: {
        description: 'What differs, and what each side has taken',
        body: wire.sessionComparison,
        content: treeWire.patchType,
        example: treeWire.patchExample,
      },
    },
    errors: ['conflict', 'sandbox_stopped', 'not_implemented', 'no_capacity', 'unavailable'],
    async handle(call) {
      const { orgId, params, query, request, deps } = call
      const { comparison } = deps.sessions
      const asked = (signal: AbortSignal): CompareSession => ({
        against: query.against,
        signal,
        ...defined({ userId: query.user_id, reach: request.caller?.reach }),
      })
      return await answerComparison(call, {
        compare: async (signal) => comparisonBody(await comparison.compare(orgId, params.sessionId, asked(signal))),
        patch: (signal) => comparison.patch(orgId, params.sessionId, asked(signal)),
      })
    },
  }),
  route('GET', '/v1/sessions/:sessionId/estimate', {
    id: 'estimateForks',
    summary: 'Say what forks of a session would take',
    description: 'From what the session has taken so far. Nothing is woken or made.',
    query: wire.estimateQuery,
    answers: { 200: { description: 'The estimate', body: wire.forkEstimate } },
    async answer({ orgId, params, query, deps }) {
      const asked = { count: query.fork ?? 1, ...defined({ userId: query.user_id }) }
      return estimateBody(await deps.sessions.estimates.forks(orgId, params.sessionId, asked))
    },
  }),
]

function turnBody({
  turn,
  message,
  usage,
  point,
  forks,
  isForksCut: forksCut,
}: TimelineTurn): z.output<typeof wire.timeline>['turns'][number] {
  const { messageId, parentId, firstEvent, lastEvent, startedAt, endedAt, subtype, preview, files, leftEvent } = turn
  return {
    ...{ messageId, message, firstEvent, forksCut },
    parentMessageId: parentId ?? null,
    lastEvent: lastEvent ?? null,
    startedAt: milliseconds(startedAt),
    endedAt: endedAt === undefined ? null : milliseconds(endedAt),
    durationMs: endedAt === undefined ? null : endedAt.getTime() - startedAt.getTime(),
    result: subtype ?? null,
    checkpoint: point === undefined ? null : pointBody(point),
    files: files ?? null,
    usage: usageBody(usage),
    preview: preview ?? null,
    left: leftEvent !== undefined,
    ...defined({ leftEvent }),
    forks: forks.map(({ id, name, status, activity, archivedFor, createdAt }) => ({
      ...{ id, status, activity },
      ...defined({ name, archivedReason: archivedFor }),
      createdAt: milliseconds(createdAt),
    })),
  }
}

function pointBody({
  checkpointId: id,
  kind,
  sizeBytes,
  durationMs,
  afterEvent,
  createdAt,
}: NonNullable<TimelineTurn['point']>) {
  return { id, kind, sizeBytes, durationMs, afterEvent, createdAt: milliseconds(createdAt) }
}

function usageBody({ costUsd, ...tokens }: TurnUsage) {
  return { ...tokens, ...defined({ totalCostUsd: costUsd }) }
}

function comparisonBody({ own, other, ...rest }: SessionComparison): z.output<typeof wire.sessionComparison> {
  const both = <Body>(bodyOf: (work: ComparedWork) => Body) => ({
    this: bodyOf(own),
    against: other === undefined ? null : bodyOf(other),
  })
  return {
    ...rest,
    usage: both(({ usage }) => usageBody(usage)),
    durationMs: both(({ durationMs = null }) => durationMs),
    preview: both(({ previewUrl: url = null, preview: state = null }) => ({ url, state })),
  }
}

function estimateBody(estimate: ForkEstimate): z.output<typeof wire.forkEstimate> {
  const { memoryBytes, diskBytes, checkpointBytes, tokensPerTurn, sessionsLeft, ...rest } = estimate
  return {
    ...rest,
    diskBytes: diskBytes ?? null,
    checkpointBytes: checkpointBytes ?? null,
    memoryBytes: { now: memoryBytes.now ?? null, max: memoryBytes.max ?? null },
    tokensPerTurn: tokensPerTurn ?? null,
    sessionsLeft: sessionsLeft ?? null,
  }
}
