import {
  Activity,
  Boxes,
  Cpu,
  HardDrive,
  House,
  KeyRound,
  Layers,
  MessagesSquare,
  ReceiptText,
  ScrollText,
  ShieldEllipsis,
  Users,
  Webhook,
  type LucideIcon,
} from 'lucide-react'
import type { Scope } from '../account/account.tsx'

export interface Destination {
  path: string
  label: string
  icon: LucideIcon
  /** What the key must have for the page to be of use; absent: any key. */
  needs?: Scope | 'operator'
}

/** The pages of the dashboard, in the order of the navigation. */
export const destinations: readonly Destination[] = [
  { path: '/', label: 'Home', icon: House },
  { path: '/sandboxes', label: 'Sandboxes', icon: Boxes, needs: 'sandbox:read' },
  { path: '/sessions', label: 'Sessions', icon: MessagesSquare, needs: 'session:read' },
  { path: '/checkpoints', label: 'Checkpoints', icon: Layers, needs: 'sandbox:read' },
  { path: '/images', label: 'Images', icon: Cpu, needs: 'image' },
  { path: '/volumes', label: 'Volumes', icon: HardDrive, needs: 'volume' },
  { path: '/secrets', label: 'Secrets', icon: ShieldEllipsis, needs: 'secret' },
  { path: '/webhooks', label: 'Webhooks', icon: Webhook, needs: 'webhook' },
  { path: '/usage', label: 'Usage', icon: ReceiptText, needs: 'usage' },
  { path: '/audit', label: 'Audit', icon: ScrollText, needs: 'audit' },
  { path: '/keys', label: 'Keys', icon: KeyRound, needs: 'keys' },
  { path: '/organisations', label: 'Organisations', icon: Users, needs: 'operator' },
  { path: '/host', label: 'Host', icon: Activity },
]
