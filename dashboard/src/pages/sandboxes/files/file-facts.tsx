import type { FileInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount, formatTime } from '../../../lib/format.ts'
import { Facts } from '../../../ui/page.tsx'
import { FileName } from './file-name.tsx'
import { textBytesMax, type ReadFile } from './read-file.ts'

const words: Record<FileInfo['type'], string> = {
  file: 'file',
  directory: 'folder',
  symlink: 'link',
  other: 'device, pipe or socket',
}

/** What there is to say about a file whose content is not shown. */
export function FileFacts({ file, isLarge }: { file: ReadFile; isLarge: boolean }): ReactNode {
  const { info, size } = file
  return (
    <div className="flex flex-col gap-4 overflow-auto p-4">
      <p className="text-soft">
        {isLarge
          ? `It is longer than what is shown here: ${formatBytes(textBytesMax)} of text. Download it to see it.`
          : 'It is no text. Download it to see it.'}
      </p>
      <Facts
        items={[
          [
            'Path',
            <FileName key="path" name={info.path} className="break-all whitespace-pre-wrap font-mono text-[13px]" />,
          ],
          ['Type', words[info.type]],
          ...(info.target === undefined ? [] : [['Leads to', <FileName key="target" name={info.target} />] as const]),
          ['Size', `${formatBytes(size)} (${formatCount(size)} bytes)`],
          ['Changed', formatTime(info.modifiedAt)],
          ['Owner', `${info.user ?? info.uid}, group ${info.gid}`],
          ['Rights', info.mode],
        ]}
      />
    </div>
  )
}
