use std::sync::Arc;
use flowloom_efsm::model::*;
use flowloom_wire::field::FieldId;
fn f(n:&str)->FieldId{FieldId::by_name(n).unwrap()}
#[test] fn show() {
  let u32t=Type{width_bits:32,signed:false};
  let eq=|n:&str,v:u64| Condition::Compare{left:Expr::Field(f(n)),relation:Relation::Equal,right:Expr::Constant(v),width:Width::W32,signed:false};
  let act=|t| Actions{writes:vec![],terminal:t};
  let row=|states:Vec<u16>,c:Vec<Condition>,next,t| Row{span:Span::default(),states,conditions:c,next,updates:vec![],actions:act(t)};
  let to=|s,t:u64| NextState::To{state:s,idle_ns:Some(t*1_000_000_000),hard_ns:None};
  let knock=Function{name:"knock".into(),source:Arc::new(Source{name:"k.efsm".into(),text:"x\n".into()}),metadata:vec![],elements:vec![Element{name:"knock".into(),span:Span::default(),
    stateful:Some(Stateful{key:Some(Key{biflow:false,fields:vec![f("ip.src")]}),size:65536,sweep_ns:1_000_000_000,states:["a","b","c","d","e"].map(String::from).to_vec(),registers:vec![],globals:vec![]}),
    rows:vec![row(vec![0],vec![eq("l4.dport",5123)],to(1,1),Terminal::Drop),row(vec![1],vec![eq("l4.dport",6234)],to(2,1),Terminal::Drop),row(vec![2],vec![eq("l4.dport",7345)],to(3,1),Terminal::Drop),row(vec![3],vec![eq("l4.dport",8456)],to(4,60),Terminal::Drop),row(vec![4],vec![eq("l4.dport",22)],NextState::Stay,Terminal::Pass),row(vec![1,2,3],vec![],NextState::To{state:0,idle_ns:None,hard_ns:None},Terminal::Drop)],
    otherwise:Otherwise{span:Span::default(),actions:act(Terminal::Drop)}}]};
  let lt=|rel| Condition::Compare{left:Expr::Register(0),relation:rel,right:Expr::Constant(100),width:Width::W32,signed:false};
  let inc=vec![Update{destination:Destination::Register(0),value:Expr::Binary(BinaryOp::Add,Box::new(Expr::Register(0)),Box::new(Expr::Constant(1))),width:Width::W32,span:Span::default()}];
  let tos=Actions{writes:vec![Write{target:WriteTarget::Field(f("ip.tos")),value:WriteValue::Number{value:Expr::Constant(1),width:Width::W32},span:Span::default()}],terminal:Terminal::Pass};
  let r=|states,c,next,updates:&Vec<Update>,actions:&Actions| Row{span:Span::default(),states,conditions:c,next,updates:updates.clone(),actions:actions.clone()};
  let big=Function{name:"big".into(),source:knock.source.clone(),metadata:vec![],elements:vec![Element{name:"big".into(),span:Span::default(),
    stateful:Some(Stateful{key:Some(Key{biflow:false,fields:["ip.src","ip.dst","ip.proto","l4.sport","l4.dport"].map(f).to_vec()}),size:65536,sweep_ns:1_000_000_000,states:["a","b"].map(String::from).to_vec(),registers:vec![Variable{name:"r".into(),ty:u32t,initial:0,span:Span::default()}],globals:vec![]}),
    rows:vec![r(vec![0],vec![lt(Relation::Less)],NextState::Stay,&inc,&act(Terminal::Pass)),r(vec![0],vec![lt(Relation::GreaterEqual)],to(1,10),&inc,&tos),r(vec![1],vec![],NextState::Stay,&vec![],&tos)],
    otherwise:Otherwise{span:Span::default(),actions:act(Terminal::Drop)}}]};
  for func in [knock,big] { let p=flowloom_efsm::lower(&func,&Default::default()).unwrap(); println!("=== {} insns", p.insns.len()); println!("{}", flowloom_bpf::disasm::disassemble(&p.insns,&p.maps).unwrap()); }
}
