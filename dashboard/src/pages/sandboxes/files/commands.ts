import { client } from '../../../account/client.ts'
import { quoted } from '../../../lib/quoted.ts'
import { literalOf } from '../../../sandboxes/literal.ts'
import type { Commands } from '../../../ui/commands.tsx'
import { downloadOf } from './download.ts'
import { bytesOfPlace, type Place } from './place.ts'

/** Reads a file by other means than this page. */
export function fileCommands(sandboxName: string, sandboxId: string, place: Place): Commands {
  return {
    cli: `atoll cp ${shellWord(`${sandboxName}:`, place)} .`,
    curl: { path: downloadOf(sandboxId, place).href },
    sdk: `const bytes = await sandbox.files.read(${sdkPath(place)})`,
  }
}

/** Copies a folder out and lists it. */
export function folderCommands(sandboxName: string, sandboxId: string, place: Place): Commands {
  const { href } = downloadOf(sandboxId, place)
  return {
    cli: `atoll cp -r ${shellWord(`${sandboxName}:`, place)} .`,
    curl: { path: href.replace(/\/files\?/, '/files/list?') },
    sdk: `const entries = await sandbox.files.list(${sdkPath(place)})`,
  }
}

/** The argument `SANDBOX:PATH` of a shell line. What cannot be seen, or is no ASCII, is escaped. */
function shellWord(before: string, place: Place): string {
  const bytes = bytesOfPlace(place)
  if (bytes.every(isPrintable)) return quoted(before + place.path)
  const text = Array.from(bytes, (byte) =>
    isPrintable(byte)
      ? String.fromCharCode(byte).replace(/['\\]/, String.raw`\$&`)
      : `\\x${byte.toString(16).padStart(2, '0')}`,
  )
  return `$'${before}${text.join('')}'`
}

function sdkPath({ path, pathBase64 }: Place): string {
  const literal = literalOf(pathBase64 === undefined ? path : { path, pathBase64 })
  return literal.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`)
}

function isPrintable(byte: number): boolean {
  return byte >= 0x20 && byte < 0x7f
}

/** Compares a folder with a checkpoint. */
export function diffCommands(sandboxName: string, sandboxId: string, from: string, folder: string): Commands {
  const { pathname, search } = client.address(`/api/sandboxes/${encodeURIComponent(sandboxId)}/diff`, { from, folder })
  return {
    cli: `atoll diff ${quoted(sandboxName)} ${from} --folder ${shellWord('', { path: folder })}`,
    curl: { path: pathname + search },
    sdk: `const { files } = await sandbox.diff({ from: ${literalOf(from)}, folder: ${sdkPath({ path: folder })} })`,
  }
}
