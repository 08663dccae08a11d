import type { ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import { namePartsOf } from './shown-name.ts'

/** A name of a file, which may be anything: on one line, with escapes for what cannot be seen. */
export function FileName({ name, className }: { name: string; className?: string }): ReactNode {
  const parts = namePartsOf(name)
  return (
    <bdi className={cx('whitespace-pre', className)}>
      {parts.map(({ text, isEscape }, index) =>
        isEscape ? (
          <span key={index} className="text-warn">
            {text}
          </span>
        ) : (
          text
        ),
      )}
    </bdi>
  )
}
