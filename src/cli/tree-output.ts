import type { SandboxTree, SandboxTreeNode } from '../../sdk/src/index.ts'
import { nameFault } from '../lib/resource-name.ts'
import { type Drawing, gap, painter, shortened, widthOfAll } from './drawing.ts'
import { cut, oneLine, padded, widthOf } from './output.ts'
import { relativeTime, sizeText } from './units.ts'

interface Row {
  /** The lines that lead to the node. */
  lead: string
  symbol: string
  /** The word that commands take for it, and what is said of it besides. */
  label: string
  about: string
  state: string
  style: string
  age: string
  bytes: string
  isReady: boolean
  isAsked: boolean
}

/** Least cells of names. */
const namesMin = 24
/** SGR: green, yellow, blue, dim, red. */
const styles: Record<string, string> = {
  running: '32',
  creating: '33',
  processing: '33',
  hibernated: '34',
  stopped: '2',
  error: '31',
  failed: '31',
}

/**
 * A tree of sandboxes (●, ○ for one that is stopped) and checkpoints (◆ with memory, ◇ without), a line each: names, state or kind, age, and
 * the bytes that are a checkpoint's own. Names from the server do not steer the terminal.
 */
export function treeText({ sandboxId, nodes }: SandboxTree, drawing: Drawing = {}): string {
  const { widthMax = Infinity, hasColors = false } = drawing
  const leads = leadsOf(nodes)
  const rows = nodes.map((node, index) => rowOf(node, { ...drawing, sandboxId, lead: leads[index] ?? '' }))
  const [state, age, bytes] = [
    widthOfAll(rows.map((row) => row.state)),
    widthOfAll(rows.map((row) => row.age)),
    widthOfAll(rows.map((row) => row.bytes)),
  ]
  const behind = [state, age, bytes].reduce((sum, width) => sum + (width === 0 ? 0 : gap.length + width), 0)
  const needed = widthOfAll(rows.map((row) => `${row.lead}${row.symbol} ${row.label}${row.about}`))
  const names = Math.min(needed, Math.max(namesMin, widthMax - behind))
  const paint = painter(hasColors)
  return rows
    .map((row) => {
      const lead = shortened(row.lead, Math.floor(names / 2))
      const left = names - widthOf(`${lead}${row.symbol} `)
      const label = cut(row.label, left)
      const about = cut(row.about, Math.max(0, left - widthOf(label)))
      const rest = ' '.repeat(Math.max(0, left - widthOf(label + about)))
      const symbol = paint(row.isReady ? '' : row.style, row.symbol)
      const cells = [
        `${paint('2', lead)}${symbol} ` + paint(row.isAsked ? '1' : '', label) + paint('2', about) + rest,
        paint(row.style, padded(row.state, state)),
        padded(row.age, age),
        row.bytes === '' ? '' : ' '.repeat(bytes - widthOf(row.bytes)) + row.bytes,
      ]
      return cells.join(gap).trimEnd()
    })
    .join('\n')
}

function rowOf(
  node: SandboxTreeNode,
  { sandboxId, lead, isExact = false, nowMs }: Drawing & { sandboxId: string; lead: string },
): Row {
  const { id, type, name, createdAt, uniqueBytes, sessionId } = node
  // A checkpoint of a turn is known by its id alone.
  const isNamed = name !== undefined && nameFault(name) === undefined && node.origin !== 'turn'
  const besides = [
    ...(isNamed || name === undefined || node.origin === 'turn' ? [] : [oneLine(name)]),
    ...(type === 'sandbox' && sessionId !== undefined ? [sessionId] : []),
  ]
  return {
    lead,
    symbol: symbolOf(node),
    isReady: node.status === 'ready',
    label: isNamed ? name : oneLine(id),
    about: besides.map((text) => ` ${text}`).join(''),
    ...stateOf(node),
    age: isExact ? createdAt : relativeTime(createdAt, nowMs),
    bytes: uniqueBytes === undefined ? '' : sizeText(uniqueBytes),
    isAsked: id === sandboxId,
  }
}

function symbolOf({ type, status, kind }: SandboxTreeNode): string {
  if (type === 'sandbox') return status === 'stopped' || status === 'error' ? '○' : '●'
  return kind === 'full' ? '◆' : '◇'
}

/** Of a checkpoint that is ready its kind, and what it was made for if that was not asked for. */
function stateOf({ type, status, reason, kind, origin }: SandboxTreeNode): Pick<Row, 'state' | 'style'> {
  if (type === 'checkpoint' && status === 'ready') {
    const what = kind === 'full' ? 'full' : 'disk'
    return { state: origin === undefined || origin === 'client' ? what : `${what}, ${origin}`, style: '2' }
  }
  const why = type === 'sandbox' && reason !== undefined ? ` (${oneLine(reason)})` : ''
  return { state: status + why, style: styles[status] ?? '' }
}

/** The lines that lead to each node; parents stand before their children. */
function leadsOf(nodes: readonly SandboxTreeNode[]): string[] {
  const last = new Map(nodes.map(({ id, parentId }) => [parentId, id]))
  /** What stands before the children of a node. */
  const inner = new Map<string, string>()
  return nodes.map(({ id, parentId }) => {
    const outer = parentId === null ? undefined : inner.get(parentId)
    const isLast = last.get(parentId) === id
    inner.set(id, outer === undefined ? '' : `${outer}${isLast ? '  ' : '│ '}`)
    return outer === undefined ? '' : `${outer}${isLast ? '└─' : '├─'}`
  })
}
