import { toolNames } from '../../protocol/agent.ts'

/** What an agent has told of a call. */
export interface AcpCall {
  /** The program's own name of the tool. */
  name?: string | undefined
  kind?: string | undefined
  title?: string | undefined
  input?: Record<string, unknown>
  /** Of the file that it is about. */
  path?: string
}

/** Names that agents have for the tools of the protocol, in lower case without `_`, `-` and blanks. */
const otherNames: Record<string, string> = {
  runshellcommand: 'bash',
  shell: 'bash',
  terminal: 'bash',
  execute: 'bash',
  exec: 'bash',
  readfile: 'read',
  readmanyfiles: 'read',
  writefile: 'write',
  createfile: 'write',
  replace: 'edit',
  multiedit: 'edit',
  strreplace: 'edit',
  applypatch: 'edit',
  find: 'glob',
  findfiles: 'glob',
  grepsearch: 'grep',
  searchfilecontent: 'grep',
  search: 'grep',
  listdirectory: 'ls',
  list: 'ls',
}

/** The protocol's name of a call's tool; the program's own name for a tool that the protocol does not know. */
export function protocolToolName(call: AcpCall): string {
  const name = (call.name ?? '').toLowerCase().replaceAll(/[_\-\s]/g, '')
  if ((toolNames as readonly string[]).includes(name)) return name
  const other = Object.hasOwn(otherNames, name) ? otherNames[name] : undefined
  if (other !== undefined) return other
  if (call.name !== undefined) return call.name
  return nameOfKind(call)
}

/** Agents that name no tool tell at least its kind. */
function nameOfKind({ kind, input = {} }: AcpCall): string {
  if (kind === 'execute') return 'bash'
  if (kind === 'read') return 'read'
  if (kind === 'edit') return 'content' in input ? 'write' : 'edit'
  if (kind === 'search')
    return 'pattern' in input && !('include' in input) && !('output_mode' in input) ? 'glob' : 'grep'
  return kind ?? 'other'
}
