import type { OrganisationLimits } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Badge } from '../../../ui/badge.tsx'
import { limitFacts, limitNames, limitText } from '../limits.ts'

/** All limits in force; `own` are those that the operator has set for the organisation. */
export function LimitTable({ limits, own = {} }: { limits: OrganisationLimits; own?: OrganisationLimits }): ReactNode {
  return (
    <table className="w-full">
      <caption className="sr-only">Limits</caption>
      <tbody>
        {limitNames.map((name) => (
          <tr key={name} className="border-b last:border-b-0">
            <th scope="row" className="py-1 pr-4 text-left font-normal text-soft" title={name}>
              {limitFacts[name].label}
            </th>
            <td className="py-1 text-right whitespace-nowrap tabular-nums">
              {own[name] !== undefined && own[name] !== null && (
                <span className="mr-2">
                  <Badge title="It differs from the default of the installation">set</Badge>
                </span>
              )}
              {limitText(limits, name)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
